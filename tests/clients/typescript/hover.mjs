// Prints what an editor shows for each constant at the top level of a TypeScript file.
import { readFileSync } from "node:fs";
import ts from "typescript";

const [file] = process.argv.slice(2);
const config = ts.readConfigFile("tsconfig.json", ts.sys.readFile).config;
const { options } = ts.convertCompilerOptionsFromJson(config.compilerOptions, process.cwd());
const service = ts.createLanguageService({
  ...ts.sys,
  useCaseSensitiveFileNames: () => ts.sys.useCaseSensitiveFileNames,
  getCompilationSettings: () => ({ ...options, noEmit: true, rootDir: "." }),
  getScriptFileNames: () => [file],
  getScriptVersion: () => "1",
  getScriptSnapshot: (name) =>
    ts.sys.fileExists(name) ? ts.ScriptSnapshot.fromString(readFileSync(name, "utf8")) : undefined,
  getCurrentDirectory: () => process.cwd(),
  getDefaultLibFileName: ts.getDefaultLibFilePath,
});

for (const statement of service.getProgram().getSourceFile(file).statements) {
  if (!ts.isVariableStatement(statement)) continue;
  const [{ name }] = statement.declarationList.declarations;
  const { displayParts } = service.getQuickInfoAtPosition(file, name.getStart());
  console.log(ts.displayPartsToString(displayParts));
}

// Generates src/generated/document.ts from the OpenAPI document src/generated/openapi.json.
// Each schema becomes an exported type, so that editors show the name of the type.
import { readFile, writeFile } from "node:fs/promises";
import openapiTS, { astToString } from "openapi-typescript";
import ts from "typescript";

const FOLDER = new URL("../src/generated/", import.meta.url);

const document = JSON.parse(await readFile(new URL("openapi.json", FOLDER), "utf8"));
// A request may omit a field that has a default value.
const declarations = await openapiTS(document, { defaultNonNullable: false });
const components = declarations.find((declaration) => declaration.name.text === "components");
const schemas = components.members.find((member) => member.name.text === "schemas").type;

/** Return the name of the schema to which a type such as `components["schemas"]["NewList"]` refers. */
function schemaName(type) {
  if (!ts.isIndexedAccessTypeNode(type) || !ts.isIndexedAccessTypeNode(type.objectType)) return undefined;
  const { objectType, indexType } = type.objectType;
  const isSchema = objectType.typeName?.text === "components" && indexType.literal.text === "schemas";
  return isSchema ? type.indexType.literal.text : undefined;
}

/** Replace the references to schemas, and the schemas themselves, with the names of the exported types. */
function useNames(node) {
  const name = schemaName(node);
  if (name) return ts.factory.createTypeReferenceNode(name);
  if (node === schemas) return ts.factory.createTypeLiteralNode(schemas.members.map(referToType));
  return ts.visitEachChild(node, useNames, undefined);
}

function referToType({ name }) {
  const type = ts.factory.createTypeReferenceNode(name.text);
  return ts.factory.createPropertySignature(undefined, name, undefined, type);
}

/** Return an exported type with the content and the comment of a schema. */
function exportSchema(schema) {
  const modifiers = [ts.factory.createModifier(ts.SyntaxKind.ExportKeyword)];
  const type = ts.visitNode(schema.type, useNames);
  const declaration = ts.factory.createTypeAliasDeclaration(modifiers, schema.name.text, undefined, type);
  return ts.setSyntheticLeadingComments(declaration, ts.getSyntheticLeadingComments(schema));
}

const nodes = [...schemas.members.map(exportSchema), ...declarations.map(useNames)];
await writeFile(new URL("document.ts", FOLDER), astToString(nodes));

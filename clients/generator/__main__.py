"""The command ``python -m clients.generator``, which writes the generated files of the clients."""

from clients.generator import files


def main() -> None:
    document = files.read_document()
    files.write_python(document, files.PYTHON)
    files.write_typescript(document, files.TYPESCRIPT)


if __name__ == "__main__":
    main()

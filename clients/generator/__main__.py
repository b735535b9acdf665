"""``python -m clients.generator`` makes what the clients have from the OpenAPI document."""

from clients.generator import files


def main() -> None:
    document = files.read_document()
    files.write_python(document, files.PYTHON)
    files.write_typescript(document, files.TYPESCRIPT)


if __name__ == "__main__":
    main()

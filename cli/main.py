import typer

from cli import devstack

app = typer.Typer(no_args_is_help=True)
devstack.register(app)


def main() -> None:
    app()


if __name__ == "__main__":
    main()

"""Options that commands of `app.cli` and of `workers.cli` share, so that they mean the same."""

import click

# Every command that calls a service has it: what is exported once holds for all of them.
service_url = click.option(
    "--url",
    envvar="LETHE_URL",
    required=True,
    help="The service, such as https://erasure.example (or LETHE_URL).",
)


def plain(text: str) -> str:
    """Replace what a terminal would act on: the text is another machine's."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def count(number: int, noun: str) -> str:
    """Return a number with its noun, "1 record" or "2 records"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"

"""The forms of imports: a file with how it is read, and the choice of what its columns become."""

from collections.abc import Mapping
from dataclasses import dataclass

from api.console.of_imports.import_columns import (
    NEW_FIELD,
    chosen_by,
    mapping_of,
)
from api.console.of_imports.shown_imports import ShownImport
from api.console.typed_forms import TypedForm
from core.errors import DomainError, FieldProblem
from core.refusals import imports as refusals
from core.refusals.requests import BODY_INVALID
from models import ImportKind, MemberImport
from services.mailing import lists
from services.mailing.imports.accept import ImportOptions

# Beside which field a refusal stands that names none.
PLACES = {
    refusals.IMPORT_FILE_MISSING.code: "file",
    refusals.IMPORT_SEVERAL_FILES.code: "file",
    refusals.IMPORT_EMPTY_FILE.code: "file",
    refusals.IMPORT_TOO_LARGE.code: "file",
}
KINDS = (
    (
        ImportKind.MEMBERS.value,
        "Members",
        "An export of another product, or a sheet of yours. Who left there stays away here too.",
    ),
    (
        ImportKind.SUPPRESSIONS.value,
        "Addresses that get no mail",
        "What your sending product suppresses, each row with its reason.",
    ),
    (ImportKind.BOUNCES.value, "Addresses whose mail bounced", ""),
    (ImportKind.COMPLAINTS.value, "Addresses that complained", ""),
)
UPDATE, START = "update", "start"


@dataclass(frozen=True)
class UploadChoice:
    """What is sent with a file."""

    list_id: int
    options: ImportOptions


def upload_choice(form: Mapping[str, str]) -> UploadChoice:
    """How a file is read at first, which is a dry run; raises ``body.invalid``."""
    try:
        list_id = lists.id_of(form.get("list_id", ""))
    except DomainError:
        list_id = None
    if list_id is None:
        raise _invalid("list_id", "Choose the list to which they come.")
    if form.get("kind") not in set(ImportKind):
        raise _invalid("kind", "Choose what the rows of the file are.")
    options = ImportOptions(
        dry_run=True,
        on_existing=_on_existing(form),
        kind=ImportKind(form["kind"]),
        create_fields="create_fields" in form,
    )
    return UploadChoice(list_id, options)


def _on_existing(form: Mapping[str, str]) -> str:
    return UPDATE if UPDATE in form else "skip"


def _invalid(name: str, rule: str) -> DomainError:
    problem = FieldProblem(f"body.{name}", "value", rule)
    return BODY_INVALID(place=problem.field, rule=rule, problems=(problem,))


def reading_form(shown: ShownImport) -> TypedForm:
    """The form of a dry run, as it was read."""
    typed = {each.box: each.chosen for each in shown.choices}
    if shown.task.on_existing == UPDATE:
        typed[UPDATE] = "on"
    return TypedForm(typed)


@dataclass(frozen=True)
class ReadingChoice:
    """How the file of a dry run is to be read now.

    Attributes:
        differs: whether something is other than when the owner looked at it last.
    """

    options: ImportOptions
    differs: bool


def reading_choice(shown: ShownImport, form: Mapping[str, str]) -> ReadingChoice:
    """Raises ``body.invalid``.

    A file is imported as its owner has looked at it: with another choice there is another look.
    """
    task, choices = shown.task, shown.choices
    on_existing = _on_existing(form)
    chosen = chosen_by(dict(form), choices)
    differs = on_existing != task.on_existing or chosen != [each.chosen for each in choices]
    if differs:
        mapping = mapping_of(choices, chosen, shown.fields) or task.mapping
        is_made = NEW_FIELD in chosen
        options = _options(task, on_existing, mapping, create_fields=is_made)
    else:
        options = _options(task, task.on_existing, task.mapping, create_fields=task.create_fields)
    return ReadingChoice(options, differs)


def _options(
    task: MemberImport,
    on_existing: str,
    mapping: Mapping[str, str] | None,
    *,
    create_fields: bool,
) -> ImportOptions:
    return ImportOptions(True, on_existing, mapping, ImportKind(task.kind), create_fields)

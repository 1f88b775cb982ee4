"""The dialogue in which people name, tag and annotate what they find: a run, a study."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc

from ...runner import Study

__all__ = ["note_editor", "tag_list"]

_MOST_TAGS = 20


def note_editor(what: str, title: str, *, labelled: bool) -> dmc.Modal:
    """Return the closed dialogue; its parts are called *what* followed by -label, -tags, -note and -save."""
    label = dmc.TextInput(
        id=f"{what}-label",
        label="Label",
        description=f"At most {Study.LABEL_LENGTH} characters; empty restores the original label.",
    )
    tags = dmc.TagsInput(
        id=f"{what}-tags",
        label="Tags",
        description=f"End each tag with Enter or a comma; at most {Study.TAG_LENGTH} characters.",
        maxTags=_MOST_TAGS,
        acceptValueOnBlur=True,
        splitChars=[","],
    )
    note = dmc.Textarea(id=f"{what}-note", label="Note", autosize=True, minRows=3, maxRows=12,
                        description=f"At most {Study.NOTE_LENGTH:,} characters.")  # fmt: skip
    save = dmc.Group([dmc.Button("Save", id=f"{what}-save")], justify="flex-end")
    parts = [label, tags, note, save] if labelled else [tags, note, save]
    return dmc.Modal(dmc.Stack(parts), id=f"{what}-editor", title=title, opened=False)


def tag_list(value: Any) -> list[str]:
    """Return the tags the browser sent, also those pasted with commas; whatever is not text is left out."""
    texts = [tag for tag in value if isinstance(tag, str)] if isinstance(value, list) else []
    return [tag for text in texts for tag in text.split(",")]

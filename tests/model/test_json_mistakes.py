"""What is wrong with JSON that was written by hand."""

from __future__ import annotations

import pytest

from milabench_ng.model.errors import InputError
from milabench_ng.model.files import parse_json


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"a": 1,\n}', "a comma stands before the closing bracket. Remove it"),
        ('{"a": [1, ]}', "a comma stands before the closing bracket. Remove it"),
        ("{'a': 1}", 'keys and texts stand in straight double quotes, such as "name"'),
        ("{a: 1}", 'keys stand in double quotes, such as "name"'),
        ('{"a": True}', "JSON writes true, false and null, with small letters"),
        ('{"a": 1, // first\n"b": 2}', "JSON has no comments. Remove this one"),
        ('{"a": 1 "b": 2}', "expected a comma or a closing bracket"),
        ('{"a": 1}}', "something follows the closing bracket of the file. Remove it"),
        ('{"a": "b\n# c: d"}', r"a text has a line break or a tab in it. Write \n or \t"),
        ('{"a": "C:\\x"}', r"a backslash in a text is written twice: \\"),
        ('{"a": "b', "a text has no closing quotation mark"),
    ],
)
def test_the_mistake_is_named_with_its_place(text: str, told: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_json(text.encode(), "rules.json")
    assert str(caught.value).startswith(f"rules.json: not JSON: {told} (line ")

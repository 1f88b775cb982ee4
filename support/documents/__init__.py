"""Read JSON and YAML configuration files strictly; all errors are `ConfigError`."""

from typing import TYPE_CHECKING

from .._plugins import exports_of

if TYPE_CHECKING:
    from ._documents import json_mapping as json_mapping
    from ._documents import parse_yaml as parse_yaml
    from ._documents import read_json as read_json
    from ._documents import read_text as read_text
    from ._documents import read_yaml as read_yaml
    from ._documents import refuse_unreadable as refuse_unreadable
    from ._documents import yaml_mapping as yaml_mapping
    from ._json import parse_json as parse_json
    from ._json import unique_keys as unique_keys
else:
    __getattr__ = exports_of(__name__, __file__)

"""PostgreSQL, Redis and S3 on loopback, for `ghosted up` and for the tests."""

from services.embedded.s3 import S3Location
from services.embedded.stack import External, Stack, remove_stack

__all__ = ["External", "S3Location", "Stack", "remove_stack"]

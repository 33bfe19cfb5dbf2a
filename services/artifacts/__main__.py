"""Makes the bucket of the settings, for installations that start with an empty object store."""

import logging

from services.artifacts.storage import open_store
from services.config import load_settings


def main() -> None:
    """The bucket exists."""
    settings = load_settings()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    open_store(settings).ensure_bucket()
    logging.getLogger(__name__).info("the bucket %s exists", settings.s3_bucket)


if __name__ == "__main__":
    main()

"""What finished stages found outlives the run: docs/decisions/0002-stage-cache.md.

Light to import: what reads and writes entries lies in the modules.
"""

from ghosted_core.stage_cache.folder import FolderStageCache
from ghosted_core.stage_cache.port import NoStageCache, StageCache

__all__ = ["FolderStageCache", "NoStageCache", "StageCache"]

from __future__ import annotations

import sys
from pathlib import Path

# Worker processes import the toy environments by name as well.
sys.path.insert(0, str(Path(__file__).parent))

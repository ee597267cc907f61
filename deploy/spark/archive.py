"""gnats archive for spark-submit: spark-submit [its options] archive.py --store DIR --out URL ..."""

import sys

from gnats.archive.spark.__main__ import main

sys.exit(main())

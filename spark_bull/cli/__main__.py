"""python -m spark_bull.cli"""

import sys

from spark_bull.cli.main import main

sys.exit(main())

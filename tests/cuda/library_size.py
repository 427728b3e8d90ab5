"""library_size.py FILE MOST: fails where the file has more bytes than MOST."""
import sys
from pathlib import Path

size, most = Path(sys.argv[1]).stat().st_size, int(sys.argv[2])
print(f"{sys.argv[1]}: {size} bytes, at most {most}")
sys.exit(size > most)

# The front door.  The build itself is CMake's (CMakePresets.json); these targets
# only put steps in order, and install what a fresh machine lacks, saying so first.

.PHONY: help demo test bench gpu-check python-folder style clean
.DEFAULT_GOAL := help

help:
	@echo 'make demo       build, fetch SmolLM2-135M (93 MB), run its 30 gated MLPs fused'
	@echo 'make test       build and run every test, sanitizers included (TILEGLU_SKIP_TORCH=1'
	@echo '                leaves out the Python package, torch and their downloads)'
	@echo 'make bench      time the library against torch on the CPU into results/cpu/'
	@echo 'make gpu-check  build with the GPU kernels and run the tests that need a GPU'
	@echo 'make python-folder  the Python package and pytest for a machine with a GPU'
	@echo 'make style      the source rules of CONTRIBUTING.md'
	@echo 'make clean      remove build/ (.venv and .cache are kept: make distclean)'
	@echo 'Plain CMake:    cmake --preset gcc-release && cmake --build build/gcc-release'

demo:
	@sh tools/demo.sh

test:
	@sh tools/test.sh

bench:
	@sh tools/bench.sh

gpu-check:
	@sh tools/gpu_check.sh

python-folder:
	@sh tools/python_folder.sh

style:
	@python3 tools/check_style.py

clean:
	rm -rf build

.PHONY: distclean
distclean: clean
	rm -rf .venv .cache

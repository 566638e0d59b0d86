#!/bin/sh
# Run the tests that need a GPU, on a host that reaches no package index.
#
#   tests/gpu/run.sh PYTHON [FOLDER]
#
# PYTHON: an interpreter with Detserve's packages, onnxruntime-gpu, cuda-bindings and pytest.
# FOLDER: pycuda's source archive and wheels of pytools, platformdirs, mako and siphash24; PyCUDA is
# compiled from it where it is missing (90 s on 16 cores; CUDA's nvcc in /usr/local/cuda).
# DETSERVE_DATA names the test data, as for all tests.
set -eu
python=$1
packages=${2:-}
cd "$(dirname "$0")/../.."
export PATH="/usr/local/cuda/bin:$PATH" PYTHONPATH="$PWD" PYTHONUNBUFFERED=1

if [ -n "$packages" ] && ! "$python" -c 'import pycuda.driver' 2>/dev/null; then
    pip="$python -m pip install --quiet --no-index --no-deps"
    $pip "$packages"/*.whl
    MAX_JOBS=$(nproc) $pip --no-build-isolation "$packages"/pycuda-*.tar.gz
fi
nvidia-smi --query-gpu=name,driver_version,memory.total,memory.used --format=csv
"$python" -c '
from models import gpu
from models.engines.choice import resolve
print(gpu.find())
print(resolve("auto", gpus=1))
'
# -s: the tests print the figures they judge
exec "$python" -m pytest tests/gpu -s -rs --durations=0 -p no:cacheprovider

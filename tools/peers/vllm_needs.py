"""What the installed package NAME asks for here, a requirement a line, without PyTorch and its kin.

usage: vllm_needs.py NAME
"""

import importlib.metadata
import sys

from packaging.requirements import Requirement

KIN = {"torch", "torchaudio", "torchcodec", "torchvision"}

for text in importlib.metadata.requires(sys.argv[1]) or []:
    requirement = Requirement(text)
    wanted = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
    if wanted and requirement.name not in KIN:
        requirement.marker = None
        print(requirement)

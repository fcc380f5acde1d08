"""CalibNN; see README.md."""

from .config import CalibNNConfig as CalibNNConfig
from .model import CalibNN as CalibNN

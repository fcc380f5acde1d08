"""Calibration: targets, methods, and the fit that `dz.calibrate` returns."""

from denizen.fit._abc import ABCSMC as ABCSMC
from denizen.fit._calibrate import calibrate as calibrate
from denizen.fit._cmaes import CMAES as CMAES
from denizen.fit._diagnostics import Diagnostics as Diagnostics
from denizen.fit._filter import Filtered as Filtered
from denizen.fit._filter import filter as filter
from denizen.fit._fit import Fit as Fit
from denizen.fit._gauss_newton import GaussNewton as GaussNewton
from denizen.fit._method import Iteration as Iteration
from denizen.fit._method import Method as Method
from denizen.fit._method import Solution as Solution
from denizen.fit._particle_filter import ParticleFilter as ParticleFilter
from denizen.fit._priors import PerGroup as PerGroup
from denizen.fit._priors import Shared as Shared
from denizen.fit._priors import Steps as Steps
from denizen.fit._priors import Walk as Walk
from denizen.fit._scores import Scores as Scores
from denizen.fit._synthetic import SyntheticLikelihood as SyntheticLikelihood
from denizen.fit._target import NegativeBinomial as NegativeBinomial
from denizen.fit._target import Noise as Noise
from denizen.fit._target import Normal as Normal
from denizen.fit._target import Poisson as Poisson
from denizen.fit._target import Target as Target
from denizen.fit._tpe import TPE as TPE

"""Operations that networks and their training bring themselves, each with a reference in plain torch.

A file has the reference, the registration with torch and the form without memory; `_cuda_*` beside it is the fast
variant with Triton. What simulations need is in `denizen.ops`.
"""

from denizen.nn.kernels._adam import adam as adam
from denizen.nn.kernels._adam import precompile_adam as precompile_adam
from denizen.nn.kernels._conv_encoder import conv as conv
from denizen.nn.kernels._conv_encoder import conv_first_gradient as conv_first_gradient
from denizen.nn.kernels._conv_encoder import conv_fits as conv_fits
from denizen.nn.kernels._conv_encoder import conv_input_gradient as conv_input_gradient
from denizen.nn.kernels._conv_encoder import conv_weight_gradient as conv_weight_gradient
from denizen.nn.kernels._conv_encoder import encode as encode
from denizen.nn.kernels._conv_encoder import linear_gradient as linear_gradient
from denizen.nn.kernels._conv_encoder import precompile_encode as precompile_encode
from denizen.nn.kernels._device_clock import device_clock as device_clock
from denizen.nn.kernels._mlp import MLP_INPUTS as MLP_INPUTS
from denizen.nn.kernels._mlp import mlp as mlp
from denizen.nn.kernels._mlp import mlp_fits as mlp_fits
from denizen.nn.kernels._mlp import precompile_mlp as precompile_mlp
from denizen.nn.kernels._precompile import precompiling as precompiling
from denizen.nn.kernels._rows import backward_sums as backward_sums
from denizen.nn.kernels._rows import first_flagged as first_flagged
from denizen.nn.kernels._sum_tree import sum_tree as sum_tree
from denizen.nn.kernels._sum_tree import tree_find as tree_find
from denizen.nn.kernels._sum_tree import tree_set as tree_set
from denizen.nn.kernels._sum_tree import tree_total as tree_total
from denizen.nn.kernels._two_layers import precompile_two_layers as precompile_two_layers
from denizen.nn.kernels._two_layers import two_layers as two_layers

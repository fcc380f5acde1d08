"""Trees of tensors: denizen's containers as pytrees; the one place that touches torch's private pytree module.

A container lists its children (tensors or containers) and carries everything else, strings, integers, modules, as a
static context that is compared by identity or equality and never batched.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.utils import _pytree


def register(
    cls: type, flatten: Callable[[Any], tuple[list[Any], Any]], unflatten: Callable[[list[Any], Any], Any]
) -> None:
    """Register `cls` as a pytree node.

    Args:
        cls: the container.
        flatten: object -> (children, static context).
        unflatten: (children, static context) -> object; must not validate, children may be placeholders.
    """
    _pytree.register_pytree_node(cls, flatten, lambda children, context: unflatten(list(children), context))


def flatten(tree: Any) -> tuple[list[Any], Any]:
    """(leaves, structure) of a tree."""
    return _pytree.tree_flatten(tree)


def unflatten(leaves: list[Any], structure: Any) -> Any:
    """The tree of a structure with these leaves."""
    return _pytree.tree_unflatten(leaves, structure)


def tensors(tree: Any) -> list[Tensor]:
    """The tensors of a tree, in a fixed order; other leaves are left out."""
    return [leaf for leaf in _pytree.tree_leaves(tree) if isinstance(leaf, Tensor)]


def map_tensors(function: Callable[[Tensor], Any], tree: Any) -> Any:
    """The tree with `function` applied to every tensor; other leaves stay."""
    return _pytree.tree_map_only(Tensor, function, tree)


def map_leaves(function: Callable[[Any], Any], tree: Any) -> Any:
    """The tree with `function` applied to every leaf."""
    return _pytree.tree_map(function, tree)

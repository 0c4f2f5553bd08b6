"""Random names for experiments without one."""

from __future__ import annotations

import random

_FIRST = (
    "amber ancient autumn bold brave brisk calm clear clever cosy crisp curious dapper daring "
    "eager early easy fair fearless fine gentle glad golden grand happy hidden honest humble "
    "jolly keen kind lively lucky mellow merry mighty modest noble patient plucky polite "
    "proud quick quiet rapid rare ready rustic serene sharp shy silent simple sleek smart "
    "snug spry steady still sunny swift tidy vivid warm wise witty young"
)
_SECOND = (
    "alpine apricot azure bronze carmine cedar cherry chestnut citron cobalt copper coral "
    "crimson cyan ebony emerald fern flint ginger granite hazel honey indigo ivory jade "
    "lavender lemon lilac lime magenta maple marble mauve mint mossy navy oak ochre olive "
    "opal orchid pearl pewter pine plum quartz rose ruby russet saffron sage sandy scarlet "
    "sepia silver slate tawny teal topaz umber velvet violet walnut willow"
)
_THIRD = (
    "badger beaver bison canary cheetah cobra condor crane cricket curlew dolphin dove "
    "dragonfly eagle egret falcon ferret finch firefly fox gazelle gecko gibbon goose grouse "
    "hare hawk hedgehog heron hornet ibis iguana jackal jay kestrel koala lark lemur lion "
    "lizard lynx magpie marmot marten mole moose newt ocelot otter owl panda pelican petrel "
    "plover puffin quail rabbit raven robin salmon seal sparrow stork swan tapir tern tiger "
    "toad turtle viper walrus weasel wolf wren"
)


def random_name(generator: random.Random) -> str:
    """Draw a name: `Experiment (quiet-copper-heron)`."""
    words = "-".join(generator.choice(words.split()) for words in (_FIRST, _SECOND, _THIRD))
    return f"Experiment ({words})"

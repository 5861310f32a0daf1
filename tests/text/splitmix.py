"""splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014). Must equal splitmix.h."""

MASK = (1 << 64) - 1


class SplitMix:
    def __init__(self, seed):
        self.state = seed

    def below(self, n):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & MASK
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB & MASK
        return (z ^ (z >> 31)) % n

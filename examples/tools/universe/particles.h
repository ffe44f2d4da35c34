#pragma once
// Particles, one per cell, moved and counted.

#include <cstdint>
#include <span>
#include <vector>

#include "examples/tools/universe/displacement.h"

namespace mpigrad::universe {

// Moves the particle at the centre of every cell by growth * psi1 + growth^2 * psi2 (in units of the box, periodic; psi2 may be
// empty) and counts the particles nearest to every cell's centre: [x in x_range(), y, z]. Particles that leave the slab are sent
// to the rank that owns their cell. Collective.
Field<std::int32_t> count_particles(const SlabFft& fft, const Displacement& psi1, const Displacement& psi2, double growth);

// Copies counts into channel `channel` of out: [x, y, z, channels]. Error: a count that exceeds int16.
void store_channel(std::span<const std::int32_t> counts, std::span<std::int16_t> out, int channels, int channel);

}  // namespace mpigrad::universe

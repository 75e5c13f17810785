// Conversations that are longer than a sequence, turn by turn.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace megatrain {

// The entries of a SampleStore's conversation, cut to at most `most` as LLaMA-Factory cuts them. A turn is what is read
// (its prompt) and what is trained after it (its answer). The turns share the room in order, and each keeps the
// beginning of both: the answer has all the room when it needs less than half of it, else what a prompt of less than
// half leaves, else its share by length. With `recent` the end of a prompt is kept, which stands next to the answer.
void shorten_turns(std::span<const uint32_t> entries, int64_t most, bool recent, std::vector<uint32_t>& into);

}  // namespace megatrain

// Detects the form of a dataset's JSON samples from the first of them.
#pragma once

#include <optional>
#include <vector>

#include "megatrain/dataset/dataset.h"
#include "megatrain/dataset/sample_blocks.h"
#include "megatrain/dataset/sample_form.h"
#include "megatrain/dataset/tokenize_dataset.h"

namespace megatrain {

// Decided by the first sample whose keys are known; empty if there is no JSON. Columns that hold text and are not read
// get a warning: one line with the first place of each. That includes a system column next to a conversation's own
// system message, and tools that the chat template does not write. Error(bad_input) if the form cannot be detected.
std::optional<SampleForm> settle_form(const Dataset& dataset, std::vector<SampleFile> files, const BlockLimits& limits,
                                      const TextCoder& model, const TokenizeOptions& options);

}  // namespace megatrain

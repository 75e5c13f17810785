// The form of a dataset's JSON samples, found by looking at the first of them.
#pragma once

#include <optional>
#include <vector>

#include "megatrain/dataset/dataset.h"
#include "megatrain/dataset/sample_blocks.h"
#include "megatrain/dataset/sample_form.h"
#include "megatrain/dataset/tokenize_dataset.h"

namespace megatrain {

// By the first sample whose keys are known; nothing where there is no JSON. Columns that hold text and are not read get
// a warning, one line with the first place of each: also a system message beside one of the conversation's own, and
// tools that the chat template does not write. Error(bad_input) where the form cannot be told.
std::optional<SampleForm> settle_form(const Dataset& dataset, std::vector<SampleFile> files, const BlockLimits& limits,
                                      const TextCoder& model, const TokenizeOptions& options);

}  // namespace megatrain

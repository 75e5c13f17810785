// The form of a dataset's JSON samples, found by looking at the first of them.
#pragma once

#include <optional>
#include <vector>

#include "megatrain/text/dataset/dataset.h"
#include "megatrain/text/dataset/sample_blocks.h"
#include "megatrain/text/dataset/sample_form.h"

namespace megatrain {

// By the first sample whose keys are known; nothing where there is no JSON. Columns that hold text and are not read get
// a warning, one line with the first place of each. Error(bad_input) where the form cannot be told.
std::optional<SampleForm> settle_form(const Dataset& dataset, std::vector<SampleFile> files, const BlockLimits& limits,
                                      bool has_template);

}  // namespace megatrain

// Samples that preferences are trained on (DPO, KTO), and the command that makes ordinary ones of them.
#pragma once

#include <string>

#include "megatrain/io/json.h"

namespace megatrain {

// What to do with a sample that is a better and a worse answer, or an answer with a judgement; empty: it is neither.
// The command keeps the whole conversation of the better answer. Where none is sure to, the sentence says what a sample
// has to look like. In commands FILE stands for the sample's file: sentences are kept beside tokenised samples, which
// belong to files of the same content under any name.
std::string preference_sentence(const nlohmann::ordered_json& sample);

}  // namespace megatrain

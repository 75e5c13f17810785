// Detects samples for preference training (DPO, KTO), and gives the command that converts them to ordinary ones.
#pragma once

#include <string>

#include "megatrain/io/json.h"

namespace megatrain {

// What to do with a sample that has a better and a worse answer, or an answer with a judgement; empty for other
// samples. The command keeps the whole conversation of the better answer. If no command is sure to do that, the message
// says what a sample has to look like. Commands say FILE instead of the file's name, because messages are stored with
// the tokenized samples, which are shared by all files of the same content.
std::string preference_sentence(const nlohmann::ordered_json& sample);

}  // namespace megatrain

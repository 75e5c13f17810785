// Keys of other trainers among those that are given: what they give of ours, and the table that says so.
#pragma once

#include <string>
#include <vector>

#include "megatrain/config/given_keys.h"
#include "megatrain/foreign/translate.h"

namespace megatrain {

// Adds what keys of other trainers ask for to our own, unless our own key is given in a place that goes over theirs.
// What cannot be is a sentence of `problems`.
std::vector<Translation> take_foreign_keys(GivenKeys& given, std::vector<std::string>& problems);

// The table of what became of them, to the log and into the configuration, and the warnings.
void show_translations(const std::vector<Translation>& translations, const GivenKeys& given, TrainConfig& config);

}  // namespace megatrain

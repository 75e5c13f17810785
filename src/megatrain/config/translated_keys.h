// Translates given keys of other trainers into ours, and shows the table of what they became.
#pragma once

#include <string>
#include <vector>

#include "megatrain/config/given_keys.h"
#include "megatrain/foreign/translate.h"

namespace megatrain {

// Adds what keys of other trainers request to our own keys. An own key on the command line takes precedence. What
// cannot be translated is a sentence in `problems`.
std::vector<Translation> take_foreign_keys(GivenKeys& given, std::vector<std::string>& problems);

// Writes the table of translations to the log and into the configuration, and logs the warnings.
void show_translations(const std::vector<Translation>& translations, const GivenKeys& given, TrainConfig& config);

}  // namespace megatrain

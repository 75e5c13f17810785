// Keys that have no effect beside what else a configuration says. What is accepted is obeyed, so they are refused.
#pragma once

#include <span>
#include <string>

#include "megatrain/config/given_keys.h"

namespace megatrain {

struct IdleRule {
  const char* key;
  // Why the key has no effect, and what to do: completes "KEY has no effect: ". Empty: it is obeyed.
  std::string (*why)(const TrainConfig&);
  const char* beside;    // the key whose value makes it so
  const char* off = "";  // a value that asks for nothing, as the file has it
  // Of a file, the default's value is refused too. Otherwise a default that is written out asks for nothing, as in
  // config.resolved.yaml.
  bool even_default = false;
  bool warns = false;  // it does have an effect, but hardly the one that is meant
};

// A key may have several rules.
std::span<const IdleRule> idle_rules();

// Refuses given keys without an effect: Error(bad_config) "FILE:LINE: KEY has no effect: …". A file may say more than
// its run needs where it is another trainer's, or where the command line makes a key of it idle: that is a warning when
// it is given, and the key has our default, so that config.resolved.yaml is read again.
void settle_idle_keys(TrainConfig& config, const GivenKeys& given);

}  // namespace megatrain

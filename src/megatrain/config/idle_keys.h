// Keys that have no effect, given the rest of the configuration. They are refused, so every accepted key takes effect.
#pragma once

#include <span>
#include <string>

#include "megatrain/config/given_keys.h"

namespace megatrain {

struct IdleRule {
  const char* key;
  // Why the key has no effect, and what to do: completes "KEY has no effect: ". Empty if it has an effect.
  std::string (*why)(const TrainConfig&);
  const char* beside;    // the key whose value makes it idle
  const char* off = "";  // the value that requests nothing, as written in a file
  // Whether a file may not even state the default. Otherwise a default that is written out is accepted, as in
  // config.resolved.yaml.
  bool even_default = false;
  bool warns = false;  // it has an effect, but probably not the intended one
};

// A key may have several rules.
std::span<const IdleRule> idle_rules();

// Refuses given keys without an effect: Error(bad_config) "FILE:LINE: KEY has no effect: …". Two cases only get a
// warning: files of other trainers, and keys of the file that the command line makes idle. Those keys are reset to our
// default, so that config.resolved.yaml can be read back.
void settle_idle_keys(TrainConfig& config, const GivenKeys& given);

}  // namespace megatrain

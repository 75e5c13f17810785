// Shortens conversations that are longer than a sequence, so that the last question and its answer stay whole.
#pragma once

#include <functional>

#include "megatrain/io/json.h"

namespace megatrain {

struct KeptAnswer {
  nlohmann::ordered_json messages;
  bool lost_turns = false;        // the oldest turns were removed
  bool shortened_system = false;  // the end of the system turn was removed, or all of it
};

// What remains of `messages` so that `fits` is true, or empty messages if the last question and answer alone are too
// long. In this order,
// 1. the oldest exchanges are removed whole, as few as possible. An exchange begins with a user's message and goes on
//    to the next one, so tool calls and their results go with it. What stands before the first question goes with the
//    first.
// 2. the system turn (the first message, if its role is system or developer) loses characters from its end
//
// Calls `fits` a number of times that grows with the logarithm of the conversation.
KeptAnswer keep_answer(const nlohmann::ordered_json& messages,
                       const std::function<bool(const nlohmann::ordered_json&)>& fits);

}  // namespace megatrain

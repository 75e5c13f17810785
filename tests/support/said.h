// What megatrain says of something: the message of a refusal, lines of the log.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "megatrain/base/error.h"

namespace megatrain {

// The message of the Error that the action throws, which has this code; "accepted" when it throws none.
template <class Action>
std::string refused_with(ExitCode code, const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(static_cast<int>(error.code()), static_cast<int>(code)) << error.what();
    return error.what();
  }
  return "accepted";
}

// What the log gets meanwhile.
template <class Action>
std::string logged_by(const Action& action) {
  testing::internal::CaptureStderr();
  action();
  return testing::internal::GetCapturedStderr();
}

}  // namespace megatrain

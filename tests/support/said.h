// Captures megatrain's messages: of an error, or in the log.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "megatrain/base/error.h"

namespace megatrain {

// The message of the Error with this code that the action throws; "accepted" if it throws none.
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

// The log output while the action runs.
template <class Action>
std::string logged_by(const Action& action) {
  testing::internal::CaptureStderr();
  action();
  return testing::internal::GetCapturedStderr();
}

}  // namespace megatrain

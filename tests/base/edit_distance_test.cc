#include "megatrain/base/edit_distance.h"

#include <gtest/gtest.h>

namespace megatrain {
namespace {

TEST(EditDistance, CountsLettersThatAreMissingAddedReplacedOrSwapped) {
  EXPECT_EQ(edit_distance("steps", "steps"), 0);
  EXPECT_EQ(edit_distance("stps", "steps"), 1);
  EXPECT_EQ(edit_distance("stepps", "steps"), 1);
  EXPECT_EQ(edit_distance("stels", "steps"), 1);
  EXPECT_EQ(edit_distance("setps", "steps"), 1);
  EXPECT_EQ(edit_distance("", "steps"), 5);
  EXPECT_EQ(edit_distance("lora_rank", "data.labels"), edit_distance("data.labels", "lora_rank"));
}

TEST(EditDistance, LongerNamesMayHoldMoreTypingErrors) {
  EXPECT_EQ(most_typing_errors("lr"), 1);
  EXPECT_EQ(most_typing_errors("steps"), 1);
  EXPECT_EQ(most_typing_errors("seq_lens"), 2);
  EXPECT_EQ(most_typing_errors("gradient_accumulation_steps"), 3);
  EXPECT_GT(edit_distance("lora_rank", "data.labels"), most_typing_errors("lora_rank"));
}

}  // namespace
}  // namespace megatrain

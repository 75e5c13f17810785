// The names of a text model's tensors in the files of a multimodal model.
#include "megatrain/hub/text_names.h"

#include <gtest/gtest.h>

namespace megatrain {

TEST(TextNames, ComeInThreeFormsThatTheTensorsShow) {
  const TextNames inside =
      find_text_names({"vision_tower.a", "language_model.model.norm.weight", "language_model.lm_head.weight"});
  EXPECT_EQ(inside.in_files("model.layers.0.mlp.up_proj.weight"), "language_model.model.layers.0.mlp.up_proj.weight");
  EXPECT_EQ(inside.in_files("lm_head.weight"), "language_model.lm_head.weight");
  const TextNames modules = find_text_names({"lm_head.weight", "model.language_model.norm.weight", "model.visual.a"});
  EXPECT_EQ(modules, kModuleNames);
  EXPECT_EQ(modules.in_files("model.norm.weight"), "model.language_model.norm.weight");
  EXPECT_EQ(modules.in_files("lm_head.weight"), "lm_head.weight");
  const TextNames plain = find_text_names({"lm_head.weight", "model.norm.weight", "visual.a"});
  EXPECT_EQ(plain.in_files("model.norm.weight"), "model.norm.weight");
}

TEST(TextNames, BelongToTheTextModelOrToAnotherPart) {
  EXPECT_EQ(kModuleNames.in_model("model.language_model.layers.1.a"), "model.layers.1.a");
  EXPECT_EQ(kModuleNames.in_model("lm_head.weight"), "lm_head.weight");
  for (const char* other : {"model.visual.blocks.0.a", "mtp.layers.0.a", "model.vision_tower.a", "language_model.a"})
    EXPECT_EQ(kModuleNames.in_model(other), std::nullopt) << other;
}

}  // namespace megatrain

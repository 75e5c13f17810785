#include "megatrain/io/sealed_json.h"

#include <gtest/gtest.h>

namespace megatrain {

using nlohmann::json;

TEST(SealedJson, HoldsForTheDocumentAndNoOther) {
  const json document = sealed({{"step", 12}, {"loss", 0.1}, {"names", {"a", "b"}}});
  EXPECT_TRUE(seal_holds(document));
  EXPECT_TRUE(seal_holds(json::parse(document.dump(3))));
  EXPECT_EQ(sealed(document), document);
  const std::string text = document.dump();
  for (size_t at = 0; at < text.size(); ++at) {
    std::string damaged = text;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    const json read = json::parse(damaged, nullptr, false);
    EXPECT_FALSE(!read.is_discarded() && seal_holds(read)) << damaged;
  }
  EXPECT_FALSE(seal_holds({{"step", 12}}));
  EXPECT_FALSE(seal_holds(json::array()));
}

}  // namespace megatrain

#include "megatrain/io/line_reader.h"

#include "tests/support/fixtures.h"

namespace megatrain {

TEST(LineReader, GivesEveryLineWithItsPlaceWhateverItsLength) {
  const TemporaryDirectory directory;
  const std::string path = directory / "lines", wide(700'000, 'x');
  const std::vector<std::string> expected = {"one", "", wide, "four", wide + "y", "cut"};
  std::string text;
  for (const std::string& line : expected) text += line + "\n";
  text.pop_back();
  write_bytes(path, text);
  LineReader lines(path);
  int64_t offset = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_TRUE(lines.next());
    EXPECT_TRUE(lines.line() == expected[i]) << i;
    EXPECT_EQ(lines.number(), static_cast<int64_t>(i) + 1);
    EXPECT_EQ(lines.offset(), offset);
    EXPECT_EQ(lines.ended(), i + 1 < expected.size());
    offset += lines.bytes();
  }
  EXPECT_EQ(offset, std::ssize(text));
  EXPECT_FALSE(lines.next());
  write_bytes(path, "");
  EXPECT_FALSE(LineReader(path).next());
}

TEST(LineReader, AFileThatCannotBeReadIsNoEmptyFile) {
  const TemporaryDirectory directory;
  expect_error(ExitCode::io, {directory.path(), "directory"}, [&] { LineReader(directory.path()).next(); });
}

}  // namespace megatrain

// Arrays by hand, as a file that is damaged could hold them.
#include "megatrain/tables/json_cells.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "megatrain/base/error.h"

namespace megatrain {
namespace {

// One column of a table, with its data.
struct Column {
  ArrowSchema type{};
  ArrowArray array{};
  std::vector<const void*> buffers;
};

class JsonCellsTest : public ::testing::Test {
 protected:
  // A row of the table, or the refusal.
  static std::string row(Column& column, int64_t length, int64_t row = 0, int64_t most = 1000) {
    column.type.name = "c";
    column.array.buffers = column.buffers.data();
    column.array.n_buffers = std::ssize(column.buffers);
    column.array.length = length;
    ArrowSchema* types[] = {&column.type};
    ArrowArray* arrays[] = {&column.array};
    const void* none[] = {nullptr};
    ArrowSchema type{.format = "+s", .name = "", .n_children = 1, .children = types};
    ArrowArray array{.length = length, .n_buffers = 1, .n_children = 1, .buffers = none, .children = arrays};
    std::string out;
    try {
      JsonCells cells(type);
      cells.bind(array);
      return cells.append_row(out, row, most) ? out : "too long";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::bad_input);
      return error.what();
    }
  }
};

TEST_F(JsonCellsTest, TextOutsideOfAColumnIsRefused) {
  const int32_t good[] = {0, 2}, bad[] = {2, 0}, below[] = {-1, 2};
  for (const int32_t* const offsets : {good, bad, below}) {
    Column column{.type = {.format = "u"}, .buffers = {nullptr, offsets, "hi"}};
    EXPECT_EQ(row(column, 1),
              offsets == good ? R"({"c": "hi"})" : "is damaged: a value points outside of its column; get it again.");
  }
}

TEST_F(JsonCellsTest, ANumberBeyondADictionaryIsRefused) {
  const int32_t offsets[] = {0, 1, 2};
  Column values{.type = {.format = "u"}, .buffers = {nullptr, offsets, "xy"}};
  values.array.buffers = values.buffers.data();
  values.array.n_buffers = 3;
  values.array.length = 2;
  const int8_t numbers[] = {1, 2, -1};
  Column column{.type = {.format = "c", .dictionary = &values.type}, .buffers = {nullptr, numbers}};
  column.array.dictionary = &values.array;
  EXPECT_EQ(row(column, 3, 0), R"({"c": "y"})");
  for (const int64_t at : {1, 2, 3}) EXPECT_TRUE(row(column, 3, at).starts_with("is damaged: ")) << at;
}

TEST_F(JsonCellsTest, ARowBeyondTheBoundIsNotWritten) {
  const std::string text(500, 'x');
  const int32_t offsets[] = {0, 500};
  Column column{.type = {.format = "u"}, .buffers = {nullptr, offsets, text.data()}};
  EXPECT_EQ(row(column, 1, 0, 400), "too long");
}

TEST_F(JsonCellsTest, ATypeThatIsNotKnownIsNamedAndMalformedOnesAreRefused) {
  Column other{.type = {.format = "+ud:0,1"}, .buffers = {nullptr}};
  EXPECT_EQ(row(other, 1), R"({"c": {"unknown Arrow type": "+ud:0,1"}})");
  for (const char* const format : {"+l", "+m", "w:x", "w:99999999999"}) {
    Column bad{.type = {.format = format}, .buffers = {nullptr}};
    EXPECT_EQ(row(bad, 1), "is damaged: a column has a malformed type; get it again.") << format;
  }
}

}  // namespace
}  // namespace megatrain

// Every sample format gives its text and mask, and every bad sample its error message.
#include "megatrain/dataset/sample_form.h"

#include "tests/dataset/dataset_fixture.h"

namespace megatrain {
namespace {

using testing::answer;
using testing::turn;
using Shown = std::vector<std::string>;

class SampleFormTest : public testing::DatasetTest {
 protected:
  // The error message for the second line, without the file's name; the first line is good.
  std::string bad_line(const std::string& line,
                       const std::string& good = R"({"messages":[{"role":"user","content":"a"},)"
                                                 R"({"role":"assistant","content":"b"}]})") {
    const std::string file = write(fmt::format("bad{}.jsonl", count_++), good + "\n" + line + "\n");
    const std::string what = refusal([&] { tokenized(file); });
    EXPECT_TRUE(what.starts_with(file + ":2: ")) << what;
    return what.substr(std::min(what.size(), file.size() + 4));
  }
  int count_ = 0;
};

TEST_F(SampleFormTest, MessagesAreRenderedAndEveryAnswerIsTrainedWithItsEnd) {
  const std::string file =
      write("a.jsonl", R"({"messages":[{"role":"system","content":"S"},{"role":"user","content":"Q"},)"
                       R"({"role":"assistant","content":"A"},{"role":"user","content":"R"},)"
                       R"({"role":"assistant","content":"B"}]})");
  const SampleStore store = tokenized(file);
  EXPECT_EQ(shown(store),
            (Shown{turn("system", "S") + turn("user", "Q") + answer("A") + turn("user", "R") + answer("B")}));
  EXPECT_FALSE(store.is_text(0));
  EXPECT_EQ(store.tokens(), store.length(0));
  EXPECT_EQ(store.trained_tokens(), 4);
}

TEST_F(SampleFormTest, TrainOnLastAndAllChangeTheMaskOnly) {
  const std::string file =
      write("a.jsonl", R"({"messages":[{"role":"user","content":"Q"},{"role":"assistant","content":"A"},)"
                       R"({"role":"user","content":"R"},{"role":"assistant","content":"B"}]})");
  TokenizeOptions how = options();
  how.train_on = TrainOn::last;
  EXPECT_EQ(shown(tokenized(file, how)),
            (Shown{turn("user", "Q") + turn("assistant", "A") + turn("user", "R") + answer("B")}));
  how.train_on = TrainOn::all;
  EXPECT_EQ(shown(tokenized(file, how)), (Shown{"[" + turn("user", "Q") + turn("assistant", "A") + turn("user", "R") +
                                                turn("assistant", "B") + "]"}));
}

TEST_F(SampleFormTest, AnAnswerOfWeightZeroIsNotTrained) {
  const std::string file =
      write("a.jsonl", R"({"messages":[{"role":"user","content":"Q"},{"role":"assistant","content":"A","weight":0},)"
                       R"({"role":"user","content":"R"},{"role":"assistant","content":"B","weight":1}]})");
  EXPECT_EQ(shown(tokenized(file)),
            (Shown{turn("user", "Q") + turn("assistant", "A") + turn("user", "R") + answer("B")}));
}

TEST_F(SampleFormTest, AWeightOtherThanZeroAndOneIsRefused) {
  for (const char* weight : {"0.5", "2", "-1", "false", "\"0\"", "[]"}) {
    EXPECT_EQ(bad_line(fmt::format(R"({{"messages":[{{"role":"user","content":"Q"}},)"
                                   R"({{"role":"assistant","content":"A","weight":{}}}]}})",
                                   weight)),
              fmt::format("message 2 has the weight {}, expected 0 (not trained) or 1.",
                          nlohmann::json(nlohmann::json::parse(weight).dump()).dump()));
  }
}

// Rendered by a template that supports only text.
TEST_F(SampleFormTest, AnAnswerThatTheTemplateDropsOrPrintsAsPythonIsRefused) {
  const ChatTemplate texts(
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.content is string or loop.first %}"
      "{{ m.content }}{% elif m.shown %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}",
      "texts", {{"eos_token", "<|im_end|>"}});
  const auto said = [&](const std::string& answer) {
    const std::string file =
        write(fmt::format("a{}.jsonl", count_++),
              R"({"messages":[{"role":"user","content":"Q"},{"role":"assistant",)" + answer + "}]}");
    const std::string what = refusal([&] { tokenize(open_dataset(file), model(&texts), options()); });
    return what.substr(std::min(what.size(), file.size() + 4));
  };
  const std::string calls = R"("tool_calls":[{"type":"function","function":{"name":"f","arguments":{}}}])";
  const std::string dropped =
      "the chat template writes nothing of message 2, an assistant message; use a template that writes its content and "
      "its tool calls, or leave the sample out.";
  EXPECT_EQ(said(R"("content":"",)" + calls), dropped);
  EXPECT_EQ(said(R"("content":[{"type":"text","text":"A"}])"), dropped);
  EXPECT_EQ(said(R"("content":[{"type":"text","text":"A"}],"shown":true)"),
            "the chat template writes the content of message 2 as Python prints a list; give it as text.");
  EXPECT_EQ(said(R"("content":null,"shown":true,)" + calls),
            "the chat template writes the content of message 2 as Python prints null (None); give it as text.");
}

TEST_F(SampleFormTest, SharegptWordsBecomeRolesAndTheSystemColumnGoesFirst) {
  const std::string file = write(
      "a.jsonl",
      R"({"conversations":[{"from":"human","value":"Q"},{"from":"gpt","value":"A"}],"system":"S"})"
      "\n"
      R"({"conversations":[{"from":"system","value":"T"},{"from":"user","value":"Q"},{"from":"assistant","value":"A"}],"system":"S"})");
  EXPECT_EQ(shown(tokenized(file)), (Shown{turn("system", "S") + turn("user", "Q") + answer("A"),
                                           turn("system", "T") + turn("user", "Q") + answer("A")}));
}

TEST_F(SampleFormTest, ConversationsWithRolesAreMessages) {
  const std::string file =
      write("a.jsonl", R"({"conversations":[{"role":"user","content":"Q"},{"role":"assistant","content":"A"}]})");
  EXPECT_EQ(shown(tokenized(file)), (Shown{turn("user", "Q") + answer("A")}));
}

TEST_F(SampleFormTest, IntegersOfAnySizeKeepTheirDigits) {
  const ChatTemplate printing(
      "{{ tools | tojson }}{% for message in messages %}<|im_start|>{{ message.role }}\n{% if message.tool_calls %}"
      "{{ message.tool_calls[0].function.arguments | tojson }}{{ message.tool_calls[0].function.arguments.a }}"
      "{% endif %}{{ message.content }}<|im_end|>\n{% endfor %}",
      "printing", {{"eos_token", "<|im_end|>"}});
  const std::string numbers =
      R"({"a": 15511210043330985984000000, "b": [9223372036854775807, 9223372036854775808, 18446744073709551615], )"
      R"("c": 18446744073709551616, "d": [-9223372036854775808, -9223372036854775809], "e": [1e+25, 2.5, 0]})";
  const std::string file =
      write("a.jsonl", R"({"tools":[{"n":123456789012345678901234567890}],"messages":[{"role":"user","content":"Q"},)"
                       R"({"role":"assistant","content":"","tool_calls":[{"function":{"name":"f","arguments":)" +
                           numbers + "}}]}]}");
  const SampleStore store = tokenize(open_dataset(file), model(&printing), options()).value();
  EXPECT_EQ(shown(store), (Shown{R"([{"n": 123456789012345678901234567890}])" + turn("user", "Q") +
                                 answer(numbers + "15511210043330985984000000")}));
  // ShareGPT stores calls and tools as JSON inside a string.
  const std::string shared =
      write("b.jsonl", R"({"conversations":[{"from":"human","value":"Q"},{"from":"function_call","value":)"
                       R"("{\"name\": \"f\", \"arguments\": {\"a\": 18446744073709551616}}"}]})");
  EXPECT_EQ(shown(tokenize(open_dataset(shared), model(&printing), options()).value()),
            (Shown{"null" + turn("user", "Q") + answer(R"({"a": 18446744073709551616}18446744073709551616)")}));
}

TEST_F(SampleFormTest, WhatAQuestionIsAboutFollowsItOnANewLine) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"instruction":"Q","context":"C","response":"A","category":"open_qa"})", "Q\nC"},  // Dolly
      {R"({"instruction":"Q","context":"","response":"A"})", "Q"},
      {R"({"instruction":"Q","context":"C","output":"A"})", "Q\nC"},
      {R"({"instruction":"Q","input":"C","response":"A"})", "Q\nC"},
      {R"({"instruction":"Q","input":"C","output":"A"})", "Q\nC"},
      {R"({"question":"Q","context":"C","answer":"A"})", "Q\nC"},
      {R"({"input":"Q","context":"C","output":"A"})", "Q\nC"},
      {R"({"problem":"Q","solution":"A"})", "Q"},
      {R"({"question":"Q","response":"A"})", "Q"},
  };
  for (const auto& [row, question] : cases)
    EXPECT_EQ(shown(tokenized(write("a.jsonl", row))), (Shown{turn("user", question) + answer("A")})) << row;
  EXPECT_EQ(shown(tokenized(write("a.jsonl", R"({"system_prompt":"S","question":"Q","response":"A"})"))),
            (Shown{turn("system", "S") + turn("user", "Q") + answer("A")}));
}

TEST_F(SampleFormTest, ColumnsThatHoldTextAndAreNotReadAreNamedOnceWithAPlace) {
  const std::string file = write("a.jsonl", R"({"question":"Q","answer":"A","id":7,"note":"","label":null})"
                                            "\n"
                                            R"({"question":"Q","answer":"A","id":8,"note":"see","choices":["x","y"]})"
                                            "\n"
                                            R"({"question":"Q","answer":"A","note":"again"})");
  for (int time = 0; time < 2; ++time) {  // the second time the store exists
    ::testing::internal::CaptureStderr();
    tokenized(file);
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_NE(said.find("the dataset " + file + " has text in columns that are not used: \"note\" (" + file +
                        ":2), \"choices\" (" + file + ":2);"),
              std::string::npos)
        << said;
  }
  ::testing::internal::CaptureStderr();
  tokenized(write(
      "b.jsonl",
      R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}],"tools":[],"system":"s"})"));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST_F(SampleFormTest, ASystemColumnBesideAnotherSystemMessageIsNamedAsNotUsed) {
  const auto warned = [&](const std::string& row) {
    ::testing::internal::CaptureStderr();
    tokenized(write("a.jsonl", R"({"messages":[{"role":"user","content":"Q"},{"role":"assistant","content":"A"}],)"
                               R"("system":"S"})"
                               "\n" +
                                   row));
    return ::testing::internal::GetCapturedStderr();
  };
  const auto row = [](const std::string& text) {
    return R"({"messages":[{"role":"system","content":"T"},{"role":"user","content":"Q"},)"
           R"({"role":"assistant","content":"A"}],"system":")" +
           text + "\"}";
  };
  EXPECT_NE(warned(row("S")).find("columns that are not used: \"system\" (" + path("a.jsonl") + ":2);"),
            std::string::npos)
      << warned(row("S"));
  for (const char* const text : {"", "T"}) EXPECT_EQ(warned(row(text)), "") << text;  // nothing is lost
  ::testing::internal::CaptureStderr();
  tokenized(write("b.jsonl", R"({"prompt":[{"role":"system","content":"T"},{"role":"user","content":"Q"}],)"
                             R"("completion":"A","system":"S"})"));
  tokenized(write("c.jsonl", R"({"conversations":[{"from":"system","value":"T"},{"from":"human","value":"Q"},)"
                             R"({"from":"gpt","value":"A"}],"system":"S"})"));
  const std::string said = ::testing::internal::GetCapturedStderr();
  for (const char* const name : {"b.jsonl", "c.jsonl"})
    EXPECT_NE(said.find("\"system\" (" + path(name) + ":1)"), std::string::npos) << said;
}

TEST_F(SampleFormTest, ToolsThatTheTemplateDoesNotWriteAreNamedAsNotUsed) {
  const ChatTemplate writing(
      "{{ tools | tojson }}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
      "<|im_end|>\n{% endfor %}",
      "writing", {{"eos_token", "<|im_end|>"}});
  const auto warned = [&](const std::string& tools, const ChatTemplate& chat) {
    const std::string file =
        write("a.jsonl", R"({"messages":[{"role":"user","content":"Q"},{"role":"assistant","content":"A"}]})"
                         "\n"
                         R"({"messages":[{"role":"user","content":"Q"},{"role":"assistant","content":"A"}],"tools":)" +
                             tools + "}");
    ::testing::internal::CaptureStderr();
    tokenize(open_dataset(file), model(&chat), options());
    return ::testing::internal::GetCapturedStderr();
  };
  const std::string tools = R"([{"type":"function","function":{"name":"f","parameters":{}}}])";
  EXPECT_NE(warned(tools, testing::chatml()).find("columns that are not used: \"tools\" (" + path("a.jsonl") + ":2);"),
            std::string::npos)
      << warned(tools, testing::chatml());
  EXPECT_EQ(warned(tools, writing), "");
  EXPECT_EQ(warned("\"[]\"", testing::chatml()), "") << "there are none";
}

TEST_F(SampleFormTest, SamplesWithPicturesAreRefusedAndEmptyListsOfThemAreNot) {
  const auto row = [](const std::string& images) {
    return R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}],"images":)" + images +
           "}\n";
  };
  tokenized(write("a.jsonl", row("[]")));
  const std::string file = write("b.jsonl", row("[]") + row(R"(["x.png"])"));
  try {
    tokenized(file);
    FAIL() << "pictures were passed over";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::bad_input);
    EXPECT_EQ(std::string(error.what()).find(file + ":2: it has \"images\", but only text is supported"), 0u)
        << error.what();
  }
}

TEST_F(SampleFormTest, ToolsAndCallsReachTheTemplateInOpenAisShape) {
  const ChatTemplate printing(
      "{{ tools | tojson }}{% for message in messages %}<|im_start|>{{ message.role }}\n{% if message.tool_calls %}"
      "{{ message.tool_calls | tojson }}{% endif %}{{ message.content }}<|im_end|>\n{% endfor %}{% if "
      "add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
      "printing", {{"eos_token", "<|im_end|>"}});
  const std::string calls = R"([{"type": "function", "function": {"name": "f", "arguments": {"z": 1, "a": [2]}}}])";
  const std::string tools = R"([{"type": "function", "function": {"name": "f", "parameters": {}}}])";
  const std::string expected = tools + turn("user", "Q") + answer(calls) + turn("tool", "7") + answer("A");
  const std::string sharegpt = write(
      "s.jsonl",
      R"({"conversations":[{"from":"human","value":"Q"},{"from":"function_call","value":"{\"name\":\"f\",\"arguments\":{\"z\":1,\"a\":[2]}}"},)"
      R"({"from":"observation","value":"7"},{"from":"gpt","value":"A"}],"tools":"[{\"name\":\"f\",\"parameters\":{}}]"})");
  EXPECT_EQ(shown(tokenize(open_dataset(sharegpt), model(&printing), options()).value()), Shown{expected});
  const std::string messages =
      write("m.jsonl", R"({"messages":[{"role":"user","content":"Q"},{"role":"assistant","content":"","tool_calls":)" +
                           calls + R"(},{"role":"tool","content":"7"},{"role":"assistant","content":"A"}],"tools":)" +
                           tools + "}");
  EXPECT_EQ(shown(tokenize(open_dataset(messages), model(&printing), options()).value()), Shown{expected});
}

TEST_F(SampleFormTest, AlpacaJoinsInstructionAndInputByALineAndHistoryGoesBefore) {
  const std::string file = write("a.json", R"([
    {"instruction": "I", "input": "J", "output": "O"},
    {"instruction": "I", "input": "", "output": "O", "system": "S", "history": [["q1", "a1"], ["q2", "a2"]]},
    {"instruction": "I", "output": "O"}])");
  EXPECT_EQ(shown(tokenized(file)), (Shown{turn("user", "I\nJ") + answer("O"),
                                           turn("system", "S") + turn("user", "q1") + answer("a1") +
                                               turn("user", "q2") + answer("a2") + turn("user", "I") + answer("O"),
                                           turn("user", "I") + answer("O")}));
}

TEST_F(SampleFormTest, PromptsMayBeTextsOrListsUnderSeveralNames) {
  const std::string expected = turn("user", "Q") + answer("A");
  for (const char* const line :
       {R"({"prompt":"Q","completion":"A"})", R"({"question":"Q","answer":"A"})", R"({"query":"Q","response":"A"})",
        R"({"prompt":[{"role":"user","content":"Q"}],"completion":[{"role":"assistant","content":"A"}]})"}) {
    EXPECT_EQ(shown(tokenized(write(fmt::format("p{}.jsonl", count_++), line))), Shown{expected}) << line;
  }
}

TEST_F(SampleFormTest, WithoutATemplatePromptAndCompletionReadOnAsOneText) {
  const auto plain = [&](const std::string& line) {
    return tokenize(open_dataset(write(fmt::format("p{}.jsonl", count_++), line)), model(nullptr), options()).value();
  };
  EXPECT_EQ(shown(plain(R"({"prompt":"One, two,","completion":" three."})")), Shown{"One, two,[ three.<|endoftext|>]"});
  EXPECT_NE(refusal([&] { plain(R"({"question":"Q","answer":"A"})"); }).find("the model has no chat template"),
            std::string::npos);
  EXPECT_NE(refusal([&] { plain(R"({"instruction":"Q","output":"A"})"); }).find("the model has no chat template"),
            std::string::npos);
}

TEST_F(SampleFormTest, DocumentsAreTrainedWholeAndEndedOnce) {
  const SampleStore lines = tokenized(write("a.jsonl", "{\"text\":\"One.\"}\n{\"text\":\"Two.<|endoftext|>\"}\n"));
  EXPECT_EQ(shown(lines), (Shown{"[One.<|endoftext|>]", "[Two.<|endoftext|>]"}));
  EXPECT_TRUE(lines.is_text(0));
  write("folder/b.txt",
        "\xEF\xBB\xBF"
        "b\r\nc\r");
  write("folder/a/z.md", "zz");
  write("folder/blank.txt", " \n\n");
  write("folder/other.png", "x");
  const Dataset folder = open_dataset(path("folder"));
  EXPECT_EQ(folder.passed_over, std::vector<std::string>{path("folder/other.png")});
  const SampleStore store = tokenized(folder);
  EXPECT_EQ(shown(store), (Shown{"[zz<|endoftext|>]", "[b\nc\r<|endoftext|>]"}));
  EXPECT_EQ(store.place(0).file, path("folder/a/z.md"));
  EXPECT_EQ(store.place(1).line, 1);
}

TEST_F(SampleFormTest, ColumnsAndRoleWordsMayBeNamed) {
  Dataset dataset =
      open_dataset(write("a.jsonl", R"({"talk":[{"who":"me","what":"Q"},{"who":"it","what":"A"}],"sys":"S"})"));
  dataset.form = DatasetForm::sharegpt;
  dataset.columns = {.messages = "talk", .role = "who", .content = "what", .system = "sys"};
  dataset.columns.user_tag = "me";
  dataset.columns.assistant_tag = "it";
  EXPECT_EQ(shown(tokenized(dataset)), (Shown{turn("system", "S") + turn("user", "Q") + answer("A")}));
  dataset = open_dataset(write("b.jsonl", R"({"q":"Q","a":"A","c":"C"})"));
  dataset.columns = {.prompt = "q", .query = "c", .response = "a"};
  EXPECT_EQ(shown(tokenized(dataset)), (Shown{turn("user", "Q\nC") + answer("A")}));
  dataset = open_dataset(write("c.jsonl", R"({"body":"B"})"));
  dataset.columns = {.text = "body"};
  EXPECT_EQ(shown(tokenized(dataset)), (Shown{"[B<|endoftext|>]"}));
}

TEST_F(SampleFormTest, ByteOrderMarkCarriageReturnsAndBlankLinesDoNotMatter) {
  const SampleStore store =
      tokenized(write("a.jsonl", "\xEF\xBB\xBF\r\n{\"text\":\"One.\"}\r\n\r\n  \n{\"text\":\"Two.\"}"));
  EXPECT_EQ(shown(store), (Shown{"[One.<|endoftext|>]", "[Two.<|endoftext|>]"}));
  EXPECT_EQ(store.place(0).line, 2);
  EXPECT_EQ(store.place(1).line, 5);
}

TEST_F(SampleFormTest, IdsAndMasksAreThoseOfTransformersWhereTokensStraddleToo) {
  const nlohmann::json golden = testing::dataset_golden("dataset.json");
  const ChatTemplate tags = testing::template_of("generation_tags");
  const ChatTemplate straddling(golden["straddling"].get<std::string>(), "straddling", {{"eos_token", "<|im_end|>"}});
  int trained_before = 0;  // tokens that begin before the span in which they are trained
  for (const auto& each : golden["cases"]) {
    SCOPED_TRACE(each["messages"].dump());
    const std::string file =
        write(fmt::format("g{}.jsonl", count_++), nlohmann::json{{"messages", each["messages"]}}.dump());
    TextCoder with = model(each["template"] == "tags" ? &tags : &straddling);
    with.template_identity = each["template"];
    const SampleStore store = tokenize(open_dataset(file), with, options()).value();
    std::vector<int32_t> ids, mask;
    for (const uint32_t entry : store.entries(0)) {
      ids.push_back(static_cast<int32_t>(entry & kTokenMask));
      mask.push_back((entry & kTrainedBit) != 0 ? 1 : 0);
    }
    EXPECT_EQ(ids, each["ids"].get<std::vector<int32_t>>());
    EXPECT_EQ(mask, each["mask"].get<std::vector<int32_t>>());
    trained_before += each["template"] == "straddling" && shown(store, 0).find("assistant:[ ") != std::string::npos;
  }
  EXPECT_GT(trained_before, 0);
}

TEST_F(SampleFormTest, TheDateThatATemplatePrintsIsTheSameOnAnyDay) {
  const ChatTemplate dated(
      "{{ strftime_now('%d %b %Y') }}{% for message in messages %}<|im_start|>{{ message.role }}\n"
      "{{ message.content }}<|im_end|>\n{% endfor %}",
      "dated", {{"eos_token", "<|im_end|>"}});
  const std::string file = write("a.jsonl", R"({"question":"Q","answer":"A"})");
  const SampleStore store = tokenize(open_dataset(file), model(&dated), options()).value();
  EXPECT_TRUE(shown(store, 0).starts_with("26 Jul 2024<|im_start|>")) << shown(store, 0);
}

TEST_F(SampleFormTest, MalformedJsonIsNamedWithItsColumn) {
  EXPECT_EQ(bad_line(R"({"messages": [})"),
            "not valid JSON at column 15: unexpected '}'; expected '[', '{', or a literal; correct or remove it.");
  EXPECT_EQ(
      bad_line(R"({"messages": )"),
      "not valid JSON at column 14: unexpected end of input; expected '[', '{', or a literal; correct or remove it.");
  EXPECT_EQ(bad_line(R"({"a":1} x)"), "not valid JSON at column 9: invalid literal; correct or remove it.");
  EXPECT_EQ(bad_line(std::string("{\"a\":\"\0\"}", 9)),
            "not valid JSON at column 7: it contains a NUL byte; correct or remove it.");
  EXPECT_EQ(bad_line(R"({"a":1,"b":{"c":1,"c":2}})"), "duplicate key \"c\"; keep one of them.");
  EXPECT_NE(bad_line(R"({"a":1e999})").find("number overflow"), std::string::npos);
  std::string many = "{", deep(100, '[');
  for (int i = 0; i < 40; ++i) many += fmt::format("\"k{}\":1,", i);
  EXPECT_EQ(bad_line(many + "\"k17\":2}"), "duplicate key \"k17\"; keep one of them.");
  EXPECT_EQ(bad_line("{\"a\":" + deep), "the JSON nests deeper than 64 levels; make it flatter.");
}

TEST_F(SampleFormTest, WhatIsNotUtf8IsNamedWithItsByte) {
  EXPECT_EQ(bad_line("{\"messages\":\"a\xff\"}"),
            "byte 94 of the file, 0xff, is not UTF-8; convert the file to UTF-8.");
  const std::string text = write("latin.txt",
                                 "Gr\xfc\xdf"
                                 "e");
  EXPECT_EQ(refusal([&] { tokenized(text); }),
            text + ":1: byte 2 of the file, 0xfc, is not UTF-8; convert the file to UTF-8.");
  const std::string binary = write("binary.txt", std::string("a\0b", 3));
  EXPECT_EQ(refusal([&] { tokenized(binary); }),
            binary + ":1: byte 1 of the file is NUL, which text cannot contain; remove the file if it is not text.");
}

TEST_F(SampleFormTest, SamplesOfAnotherShapeAreNamedWithWhatWasExpected) {
  EXPECT_TRUE(bad_line("[1]").starts_with("a sample is a list; expected an object: {\"messages\"")) << bad_line("[1]");
  EXPECT_EQ(bad_line(R"({"text":"t","id":4})"),
            "it has no \"messages\", but the keys \"text\", \"id\"; all samples of a dataset need the same format: add "
            "it, or name its column with columns.");
  EXPECT_EQ(bad_line(R"({"messages":[]})"), "\"messages\" is empty: the conversation has no message.");
  EXPECT_EQ(bad_line(R"({"messages":"x"})"), "\"messages\" is text; expected a list of messages.");
  EXPECT_EQ(bad_line(R"({"messages":[3]})"), "message 1 is a number; expected an object.");
  EXPECT_EQ(bad_line(R"({"messages":[{"role":"user","content":3}]})"),
            "the content of message 1 is a number; expected text.");
  EXPECT_EQ(bad_line(R"({"messages":[{"role":"user"}]})"), "message 1 has no content.");
  EXPECT_EQ(bad_line(R"({"messages":[{"role":"user","content":null}]})"), "message 1 has no content.");
  EXPECT_EQ(bad_line(R"({"messages":[{"role":"user","content":[{"type":"image","url":"u"}]}]})"),
            "the content of message 1 has a part of type \"image\"; only text is supported.");
  EXPECT_EQ(bad_line(R"({"messages":[{"role":"user","content":"a"},{"role":"boss","content":"b"}]})"),
            "message 2 has the unknown role \"boss\"; expected one of user, assistant, system, tool, developer, "
            "function, ipython.");
  EXPECT_TRUE(bad_line(R"({"messages":[{"role":"user","content":"a"}],"tools":"[1"})")
                  .starts_with("\"tools\" is text and has to be a JSON list"));
}

TEST_F(SampleFormTest, OtherFormsNameTheirColumnsToo) {
  const std::string alpaca = R"({"instruction":"I","output":"O"})";
  EXPECT_EQ(bad_line(R"({"instruction":"I","output":7})", alpaca), "\"output\" is a number; expected text.");
  EXPECT_TRUE(
      bad_line(R"({"instruction":"I"})", alpaca).starts_with("it has no \"output\", but the keys \"instruction\";"));
  EXPECT_EQ(bad_line(R"({"instruction":"I","output":"O","history":[["a"]]})", alpaca),
            "\"history\" has a turn that is not a pair of texts.");
  const std::string sharegpt = R"({"conversations":[{"from":"human","value":"Q"},{"from":"gpt","value":"A"}]})";
  EXPECT_TRUE(bad_line(R"({"conversations":[{"from":"function_call","value":"f x"}]})", sharegpt)
                  .starts_with("message 1 is a function call and has to be JSON, but it is not "));
  EXPECT_EQ(bad_line(R"({"conversations":[{"from":"function_call","value":"{\"name\":\"f\"}"}]})", sharegpt),
            "message 1 is a function call and has to be an object with \"name\" and \"arguments\", or a list of them.");
  EXPECT_EQ(bad_line(R"({"text":" "})", R"({"text":"a"})"), "\"text\" is empty.");
  EXPECT_EQ(bad_line(R"({"text":["a"]})", R"({"text":"a"})"), "\"text\" is a list; expected text.");
}

TEST_F(SampleFormTest, AConversationThatTrainsNothingIsBadAndSaysWhy) {
  EXPECT_EQ(bad_line(R"({"messages":[{"role":"user","content":"a"}]})"),
            "the conversation has no assistant message, so nothing in it is trained.");
  EXPECT_EQ(bad_line(R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":" "}]})"),
            "every assistant message is empty or has the weight 0, so nothing in the conversation is trained.");
  const ChatTemplate silent("{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}",
                            "silent");
  const std::string file = write("q.jsonl", R"({"question":"Q","answer":"A"})");
  EXPECT_EQ(refusal([&] { tokenize(open_dataset(file), model(&silent), options()); }),
            file +
                ":1: the chat template writes nothing of message 2, an assistant message; use a template that writes "
                "its content and its tool calls, or leave the sample out.");
}

TEST_F(SampleFormTest, ATemplatesRefusalIsGivenInItsWords) {
  const ChatTemplate mistral = testing::template_of("mistral_v1");
  const std::string file = write("q.jsonl", R"({"messages":[{"role":"assistant","content":"A"}]})");
  const std::string what = refusal([&] { tokenize(open_dataset(file), model(&mistral), options()); });
  EXPECT_TRUE(what.starts_with(file + ":1: the chat template refuses the conversation: ")) << what;
  EXPECT_NE(what.find("Conversation roles must alternate user/assistant/user/assistant/..."), std::string::npos)
      << what;
}

TEST_F(SampleFormTest, ATokenThatTheTemplateWritesAndTheTokenizerLacksIsNamed) {
  const ChatTemplate phi("{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}<|end|>\n{% endfor %}", "phi");
  const std::string file = write("q.jsonl", R"({"question":"Q","answer":"A"})");
  EXPECT_EQ(refusal([&] { tokenize(open_dataset(file), model(&phi), options()); }),
            file +
                ":1: the chat template writes \"<|end|>\", which the tokenizer does not have as one token; use the "
                "template and the tokenizer of the same model, or add the token to tokenizer.json.");
  const ChatTemplate eos("{% for m in messages %}{{ m.content + eos_token }}{% endfor %}", "eos",
                         {{"eos_token", "</s>"}});
  EXPECT_NE(refusal([&] { tokenize(open_dataset(file), model(&eos), options()); }).find("writes \"</s>\""),
            std::string::npos);
}

}  // namespace
}  // namespace megatrain

#include "bench/load/prompt_words.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace kvrm::cli {
namespace {

constexpr std::string_view kWords =
    "time year people way day man thing woman life child world school state family student group "
    "country problem hand part place case week company system program question work government "
    "number night point home water room mother area money story fact month lot right study book "
    "eye job word business issue side kind head house service friend father power hour game line "
    "end member law car city community name president team minute idea body information back "
    "parent face others level office door health person art war history party result change "
    "morning reason research girl guy moment air teacher force education about above after again "
    "against all also always among and any are around because been before being below between both "
    "but came can come could did different does down during each even every few find first found "
    "from gave get give good great had has have her here high him his how into its just know large "
    "last later left like little long look made make many may might more most much must never new "
    "next not now off often old once one only open other our out over own possible put rather read "
    "really said same saw say second see seem several she should show since small some something "
    "still such take tell than that their them then there these they think this those three "
    "through "
    "today together too took toward two under until upon use used very want was well went were "
    "what "
    "when where which while who whole why will with without would write wrong young your";

}  // namespace

PromptWords::PromptWords() {
  size_t begin = 0;
  while (begin < kWords.size()) {
    const size_t end = std::min(kWords.find(' ', begin), kWords.size());
    words_.push_back(kWords.substr(begin, end - begin));
    begin = end + 1;
  }
}

PromptWords::PromptWords(std::vector<std::string_view> words) : words_(std::move(words)) {
  KVRM_CHECK(!words_.empty(), "a prompt is made of at least one word");
}

std::string PromptWords::Text(uint32_t count, Random random) const {
  std::string text;
  text.reserve(size_t{count} * 6);
  for (uint32_t i = 0; i < count; ++i) {
    if (i > 0) text += ' ';
    text += words_[random.Between(0, words_.size() - 1)];
  }
  return text;
}

}  // namespace kvrm::cli

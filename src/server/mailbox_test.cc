#include "server/mailbox.h"

#include <gtest/gtest.h>

namespace kvrm {
namespace {

MailboxEvent TokenMail(TokenId token) {
  MailboxEvent event;
  event.token = token;
  return event;
}

std::vector<TokenId> TokensOf(const std::vector<MailboxEvent>& batch) {
  std::vector<TokenId> tokens;
  for (const MailboxEvent& event : batch) tokens.push_back(event.token);
  return tokens;
}

TEST(Mailbox, AStepIsTakenWholeOrNotAtAll) {
  Mailbox mailbox([] {});
  std::vector<MailboxEvent> batch;
  mailbox.Append(TokenMail(1));
  mailbox.Append(TokenMail(2));
  mailbox.Take(batch);
  EXPECT_TRUE(batch.empty());
  mailbox.Flush();
  mailbox.Append(TokenMail(3));
  mailbox.Take(batch);
  EXPECT_EQ(TokensOf(batch), (std::vector<TokenId>{1, 2}));
  mailbox.Take(batch);
  EXPECT_TRUE(batch.empty());
  mailbox.Flush();
  mailbox.Take(batch);
  EXPECT_EQ(TokensOf(batch), (std::vector<TokenId>{3}));
}

TEST(Mailbox, StepsThatWaitComeInOrderAndWakeTheReaderOnce) {
  int wakes = 0;
  Mailbox mailbox([&wakes] { ++wakes; });
  std::vector<MailboxEvent> batch;
  mailbox.Flush();
  EXPECT_EQ(wakes, 0) << "nothing to read";
  for (TokenId token = 0; token < 6; ++token) {
    mailbox.Append(TokenMail(token));
    if (token % 2 == 1) mailbox.Flush();
  }
  EXPECT_EQ(wakes, 1);
  mailbox.Take(batch);
  EXPECT_EQ(TokensOf(batch), (std::vector<TokenId>{0, 1, 2, 3, 4, 5}));
  mailbox.Append(TokenMail(6));
  mailbox.Flush();
  EXPECT_EQ(wakes, 2);
}

}  // namespace
}  // namespace kvrm

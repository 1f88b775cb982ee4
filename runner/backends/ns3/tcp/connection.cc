// SPDX-License-Identifier: GPL-2.0-only
#include "connection.h"

#include <ns3/callback.h>
#include <ns3/packet.h>

#include <algorithm>

namespace chakrascope::tcp {
namespace {

constexpr std::uint64_t kLargestWrite = 1 << 16;
// Messages within the last kKeptBytes bytes are kept to count retransmissions. The size of the sender's
// buffer limits unacknowledged data to fewer bytes.
constexpr std::uint64_t kKeptBytes = 1 << 28;

}  // namespace

void Stream::send(std::uint64_t message, std::uint64_t bytes) {
    requested_ += bytes;
    in_flight_.push_back({message, requested_});
    recent_.push_back({message, requested_});
    if (!sender_) return;
    if (written_ + bytes == requested_) sender_->about_to_send();
    write();
}

void Stream::set_sender(ns3::Ptr<HostSocket> socket) {
    sender_ = socket;
    sender_->SetSendCallback(ns3::MakeCallback(&Stream::room, this));
    sender_->on_retransmission([this](std::uint64_t before_end) { sent_again(before_end); });
    write();
}

void Stream::set_receiver(ns3::Ptr<HostSocket> socket) {
    receiver_ = socket;
    receiver_->SetRecvCallback(ns3::MakeCallback(&Stream::read, this));
}

void Stream::write() {
    while (written_ < requested_) {
        const std::uint64_t room = sender_->GetTxAvailable();
        const auto bytes = static_cast<std::uint32_t>(std::min({requested_ - written_, room, kLargestWrite}));
        if (bytes == 0 || sender_->Send(ns3::Create<ns3::Packet>(bytes), 0) < 0) return;
        written_ += bytes;
    }
}

void Stream::read(ns3::Ptr<ns3::Socket> socket) {
    while (const ns3::Ptr<ns3::Packet> packet = socket->Recv()) {
        if (packet->GetSize() == 0) break;
        received_ += packet->GetSize();
    }
    while (!in_flight_.empty() && in_flight_.front().end <= received_) {
        const std::uint64_t message = in_flight_.front().id;
        in_flight_.pop_front();
        complete_(message);
    }
    while (!recent_.empty() && recent_.front().end + kKeptBytes < received_) recent_.pop_front();
}

void Stream::sent_again(std::uint64_t before_end) {
    const std::uint64_t first = written_ - std::min(before_end, written_);
    const auto found =
        std::upper_bound(recent_.begin(), recent_.end(), first,
                         [](std::uint64_t offset, const Message& message) { return offset < message.end; });
    if (found != recent_.end()) ++retransmissions_[found->id];
}

}  // namespace chakrascope::tcp

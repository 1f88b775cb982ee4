#include "timing.h"

#include <algorithm>

namespace chakrascope::engine::flow {
namespace {

// Above this ratio of acknowledgements to packets, each packet has a separate acknowledgement.
constexpr double kEveryPacket = 0.75;

}  // namespace

Timing::Timing(const std::vector<Direction>& directions, const packet::Settings& settings)
    : settings_(settings), packet_bytes_(settings.payload_bytes + settings.header_bytes()), answers_(1.0) {
    const std::uint32_t packets_an_answer =
        (settings.ack_interval_bytes + settings.payload_bytes - 1) / settings.payload_bytes;
    answers_ = 1.0 / std::max(packets_an_answer, 1u);
    for (std::uint32_t link = 0; link < directions.size(); ++link) {
        times_.push_back({0, 0, static_cast<double>(directions[link].delay), 0});
        set_rate(link, directions[link].rate_bps);
    }
}

// Set the rate of a link. No packet uses a link that is down (rate 0).
void Timing::set_rate(std::uint32_t link, std::uint64_t rate_bps) {
    Times& times = times_[link];
    times.rate_bps = rate_bps;
    if (rate_bps == 0) return;
    const auto whole = settings_.payload_bytes + settings_.header_bytes();
    times.full = static_cast<double>(settings_.transmission(whole, rate_bps));
    times.answer = static_cast<double>(settings_.transmission(settings_.ack_bytes(), rate_bps));
}

Line Timing::line(std::uint32_t link, bool leaves_host) const {
    const double full = std::max(times_[link].full, 1e-3);
    return {packet_bytes_ / full, answers_ * times_[link].answer / full, leaves_host};
}

Packets Timing::packets(std::uint64_t bytes) const {
    const std::uint64_t payload = settings_.payload_bytes;
    const std::uint32_t header = settings_.header_bytes();
    Packets packets;
    packets.count = (bytes + payload - 1) / payload;
    packets.first_bytes = static_cast<std::uint32_t>(std::min(bytes, payload)) + header;
    packets.last_bytes = static_cast<std::uint32_t>(bytes - (packets.count - 1) * payload) + header;
    packets.wire_bytes = bytes + packets.count * header;
    return packets;
}

double Timing::sending(std::uint32_t link, std::uint32_t bytes) const {
    const Times& times = times_[link];
    if (bytes == static_cast<std::uint32_t>(packet_bytes_)) return times.full;
    return static_cast<double>(settings_.transmission(bytes, times.rate_bps));
}

double Timing::head(std::span<const std::uint32_t> path, std::size_t hop, const Packets& packets) const {
    double time = 0;
    for (const std::uint32_t link : path.first(hop)) time += sending(link, packets.first_bytes) + delay(link);
    return time;
}

// Return the arrivals of the last two packets. On the path, a short last packet catches up with the previous
// packet.
Pair Timing::tail(std::span<const std::uint32_t> path, std::size_t hop, const Packets& packets,
                  double last) const {
    Pair times{delay(path[hop]) - last, delay(path[hop])};
    for (const std::uint32_t link : path.subspan(hop + 1)) {
        times.before += full(link);
        if (packets.count > 1) times.last = std::max(times.last, times.before);
        times.last += sending(link, packets.last_bytes) + delay(link);
        times.before += delay(link);
    }
    return times;
}

Pair Timing::answer_tail(std::span<const std::uint32_t> path, const Packets& packets, Pair times) const {
    for (const std::uint32_t link : path) {
        times.before += answer(link);
        if (packets.count > 1 && answers_ > kEveryPacket) times.last = std::max(times.last, times.before);
        times.last += answer(link) + delay(link);
        times.before += delay(link);
    }
    return times;
}

double Timing::answer_time(std::span<const std::uint32_t> path) const {
    double time = 0;
    for (const std::uint32_t link : path) time += answer(link) + delay(link);
    return time;
}

}  // namespace chakrascope::engine::flow

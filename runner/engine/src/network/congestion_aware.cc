// The congestion-aware network of one dimension: whole messages are stored and forwarded over links that
// carry one message at a time, first come first served.
#include <deque>

#include "../errors.h"
#include "network.h"

namespace chakrascope {
namespace {

class AwareNetwork final : public Network {
  public:
    AwareNetwork(const Config& config, EventQueue& events, Mailbox& mailbox)
        : events_(events),
          mailbox_(mailbox),
          count_(config.npus_count[0]),
          latency_(config.latency[0]),
          bandwidth_(bytes_per_ns(config.bandwidth[0])),
          shape_(config.topology[0]) {
        build();
        lines_.resize(links_.size());
    }

    void carry(std::uint32_t message) override { offer(message, mailbox_.route(message).source); }

    const std::vector<LinkUse>& links() const override { return links_; }

  private:
    struct Waiting {
        std::uint32_t message;
        Time since;
        Origin origin;
    };
    struct Line {
        bool busy = false;
        std::deque<Waiting> waiting;
    };

    void build() {
        if (shape_ == "Ring") {
            for (int i = 0; i < count_; ++i) links_.push_back({i, (i + 1) % count_});
            for (int i = 0; i < count_; ++i) links_.push_back({i, (i + count_ - 1) % count_});
        } else if (shape_ == "Switch") {
            for (int i = 0; i < count_; ++i) links_.push_back({i, count_});
            for (int i = 0; i < count_; ++i) links_.push_back({count_, i});
        } else {
            for (int i = 0; i < count_; ++i)
                for (int j = 0; j < count_; ++j) links_.push_back({i, j});
        }
    }

    // The link that takes a message from a device towards its destination.
    std::size_t next_link(int device, int destination) const {
        if (shape_ == "Ring") {
            const int clockwise = (destination - device + count_) % count_;
            // Half way round, the direction was chosen by the source; both halves of the walk agree on
            // clockwise.
            return static_cast<std::size_t>(clockwise <= count_ - clockwise ? device : count_ + device);
        }
        if (shape_ == "Switch")
            return static_cast<std::size_t>(device < count_ ? device : count_ + destination);
        return static_cast<std::size_t>(device) * static_cast<std::size_t>(count_) +
               static_cast<std::size_t>(destination);
    }

    void offer(std::uint32_t message, int device) {
        const std::size_t link = next_link(device, mailbox_.route(message).destination);
        if (lines_[link].busy) {
            lines_[link].waiting.push_back({message, events_.now(), events_.origin()});
        } else {
            transmit(message, link);
        }
    }

    void transmit(std::uint32_t message, std::size_t link) {
        const std::uint64_t size = mailbox_.size(message);
        const double serialization = static_cast<double>(size) / bandwidth_;
        const Time busy = truncate(serialization);
        lines_[link].busy = true;
        LinkUse& use = links_[link];
        use.bytes += size;
        use.busy += busy;
        ++use.messages;
        const std::uint64_t hop = (static_cast<std::uint64_t>(message) << 32) | link;
        events_.at(events_.now() + truncate(latency_ + serialization), bind<&AwareNetwork::reach>(this, hop));
        events_.at(events_.now() + busy, bind<&AwareNetwork::free_link>(this, link));
    }

    void reach(std::uint64_t hop) {
        const auto message = static_cast<std::uint32_t>(hop >> 32);
        const int device = links_[hop & 0xFFFFFFFF].destination;
        if (device == mailbox_.route(message).destination) {
            mailbox_.arrived(message);
        } else {
            offer(message, device);
        }
    }

    void free_link(std::uint64_t link) {
        Line& line = lines_[link];
        line.busy = false;
        if (line.waiting.empty()) return;
        const Waiting next = line.waiting.front();
        line.waiting.pop_front();
        links_[link].queued += events_.now() - next.since;
        events_.set_origin(next.origin);
        transmit(next.message, link);
    }

    EventQueue& events_;
    Mailbox& mailbox_;
    const int count_;
    const double latency_;
    const double bandwidth_;
    const std::string shape_;
    std::vector<LinkUse> links_;
    std::vector<Line> lines_;
};

}  // namespace

std::unique_ptr<Network> make_aware_network(const Config& config, EventQueue& events, Mailbox& mailbox) {
    if (config.topology.size() != 1) {
        throw ConfigError("The congestion-aware network has " + std::to_string(config.topology.size()) +
                          " dimensions; it can have one. Use the congestion-unaware network for more.");
    }
    return std::make_unique<AwareNetwork>(config, events, mailbox);
}

}  // namespace chakrascope

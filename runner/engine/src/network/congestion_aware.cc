// The congestion-aware network: each device stores and forwards whole messages. A link carries one
// message at a time, first come first served.
#include <algorithm>
#include <cstddef>
#include <vector>

#include "network.h"
#include "topology.h"

namespace chakrascope::engine {
namespace {

// Records the traffic of lines, which carry one message at a time, in equal intervals from time 0. All
// lines have the same intervals. The length of the intervals doubles when there are too many intervals.
class LineHistory {
  public:
    explicit LineHistory(std::size_t lines) : bytes_(lines) {}

    // Add a message that occupies the line for `busy` ns from `start`, and sends at a constant rate.
    void add(std::size_t line, Time start, Time busy, std::uint64_t bytes) {
        const Time end = start + std::max<Time>(busy, 1);
        while (end > kStretches * width_) widen();
        std::vector<std::uint64_t>& own = bytes_[line];
        if (own.empty()) own.resize(kStretches);
        std::uint64_t counted = 0;
        for (std::size_t place = start / width_; counted < bytes; ++place) {
            const Time until = (place + 1) * width_;
            const double through = static_cast<double>(until - start) / static_cast<double>(end - start);
            const auto passed =
                until >= end ? bytes : static_cast<std::uint64_t>(through * static_cast<double>(bytes));
            own[place] += passed - counted;
            counted = passed;
        }
    }

    // Append the intervals with traffic on the line from `source` to `destination`.
    void tell(std::size_t line, std::int32_t source, std::int32_t destination,
              std::vector<LinkInterval>& intervals) const {
        for (std::size_t place = 0; place < bytes_[line].size(); ++place) {
            if (bytes_[line][place] == 0) continue;
            const auto start = static_cast<std::int64_t>(place * width_);
            const auto end = start + static_cast<std::int64_t>(width_);
            intervals.push_back({source, destination, start, end, bytes_[line][place]});
        }
    }

  private:
    static constexpr std::size_t kStretches = 64;

    void widen() {
        for (std::vector<std::uint64_t>& own : bytes_) {
            if (own.empty()) continue;
            for (std::size_t i = 0; i < kStretches / 2; ++i) own[i] = own[2 * i] + own[2 * i + 1];
            std::fill(own.begin() + kStretches / 2, own.end(), 0);
        }
        width_ *= 2;
    }

    Time width_ = 1000;                              // ns
    std::vector<std::vector<std::uint64_t>> bytes_;  // bytes per interval of each line, if any
};

class AwareNetwork final : public Network {
  public:
    AwareNetwork(const Config& config, EventQueue& events, Mailbox& mailbox)
        : events_(events),
          mailbox_(mailbox),
          topology_(config.fabric.nodes == 0 ? make_dimensions(config) : make_graph(config)),
          lines_(topology_->links().size()),
          history_(config.record_links ? lines_.size() : 0),
          recording_(config.record_links),
          changes_(config.fabric.changes) {
        for (const Link& link : topology_->links()) uses_.push_back({link.source, link.destination});
        // A switch can return a message to its sender. Other networks have no path from a rank to
        // itself.
        loops_ = config.fabric.nodes == 0 && config.topology.size() == 1 &&
                 shape_of(config.topology[0]) == Shape::Switch;
        for (const LinkChange& change : changes_) {
            if (change.time > 0)
                events_.at(static_cast<Time>(change.time / kTicksPerNs),
                           bind<&AwareNetwork::change_links>(this));
        }
        change_links(0);
    }

    void carry(std::uint32_t message) override {
        const Route route = mailbox_.route(message);
        if (route.source == route.destination && !loops_) {
            events_.at(events_.now(), bind<&Mailbox::arrived>(&mailbox_, message));
        } else {
            offer(message, route.source);
        }
    }

    const std::vector<LinkUse>& links() const override { return uses_; }

    const FabricReport* report() const override {
        if (!recording_) return nullptr;
        report_.intervals.clear();
        for (std::size_t line = 0; line < uses_.size(); ++line)
            history_.tell(line, uses_[line].source, uses_[line].destination, report_.intervals);
        return &report_;
    }

  private:
    static constexpr std::uint32_t kNone = 0xFFFFFFFF;
    // The wait of a message for a link. A message waits for one link at a time.
    struct Waiting {
        Time since = 0;
        Origin origin;
        std::uint32_t next = kNone;
    };
    struct Line {
        bool busy = false;
        std::uint32_t first = kNone;
        std::uint32_t last = kNone;
    };

    struct Stranded {
        std::uint32_t message;
        std::int32_t device;
        Origin origin;
    };

    void offer(std::uint32_t message, std::int32_t device) {
        const auto [source, destination] = mailbox_.route(message);
        if (!changes_.empty() && !topology_->reaches(device, destination)) {
            device = source;  // a disconnected switch loses its messages, which the source sends again
            if (next_change_ < changes_.size() && !topology_->reaches(device, destination)) {
                stranded_.push_back({message, device, events_.origin()});
                return;
            }
        }
        const std::size_t link = topology_->next(device, destination);
        Line& line = lines_[link];
        if (!line.busy) return transmit(message, link);
        if (waiting_.size() <= message) waiting_.resize(message + 1);
        waiting_[message] = {events_.now(), events_.origin(), kNone};
        (line.first == kNone ? line.first : waiting_[line.last].next) = message;
        line.last = message;
    }

    void transmit(std::uint32_t message, std::size_t place) {
        const std::uint64_t size = mailbox_.size(message);
        const Link& link = topology_->links()[place];
        const double serialization = static_cast<double>(size) / link.bandwidth;
        const Time busy = truncate(serialization);
        lines_[place].busy = true;
        LinkUse& use = uses_[place];
        use.bytes += size;
        use.busy += busy;
        ++use.messages;
        if (recording_) history_.add(place, events_.now(), busy, size);
        const std::uint64_t hop = (static_cast<std::uint64_t>(message) << 32) | place;
        events_.at(events_.now() + truncate(link.latency + serialization),
                   bind<&AwareNetwork::reach>(this, hop));
        events_.at(events_.now() + busy, bind<&AwareNetwork::free_link>(this, place));
    }

    void reach(std::uint64_t hop) {
        const auto message = static_cast<std::uint32_t>(hop >> 32);
        const std::int32_t device = topology_->links()[hop & 0xFFFFFFFF].destination;
        if (device == mailbox_.route(message).destination) {
            mailbox_.arrived(message);
        } else {
            offer(message, device);
        }
    }

    void free_link(std::uint64_t link) {
        Line& line = lines_[link];
        line.busy = false;
        if (line.first == kNone) return;
        const std::uint32_t message = line.first;
        const Waiting waited = waiting_[message];
        line.first = waited.next;
        uses_[link].queued += events_.now() - waited.since;
        events_.set_origin(waited.origin);
        transmit(message, link);
    }

    // Apply all link changes that are due now. A message already on a link that goes down still arrives.
    // Messages that wait for the link, or for any path, are rerouted.
    void change_links(std::uint64_t) {
        std::vector<Stranded> moved;
        while (next_change_ < changes_.size() &&
               changes_[next_change_].time / kTicksPerNs <= static_cast<Ticks>(events_.now())) {
            const LinkChange& change = changes_[next_change_++];
            topology_->change(change.link, change.rate_bps);
            if (change.rate_bps > 0) continue;
            for (const std::size_t place : {2 * std::size_t{change.link}, 2 * std::size_t{change.link} + 1})
                take_waiting(place, moved);
        }
        moved.insert(moved.end(), stranded_.begin(), stranded_.end());
        stranded_.clear();
        for (const Stranded& item : moved) {
            events_.set_origin(item.origin);
            offer(item.message, item.device);
        }
    }

    void take_waiting(std::size_t place, std::vector<Stranded>& moved) {
        Line& line = lines_[place];
        for (std::uint32_t message = line.first; message != kNone; message = waiting_[message].next) {
            uses_[place].queued += events_.now() - waiting_[message].since;
            moved.push_back({message, uses_[place].source, waiting_[message].origin});
        }
        line.first = line.last = kNone;
    }

    EventQueue& events_;
    Mailbox& mailbox_;
    const std::unique_ptr<Topology> topology_;
    std::vector<Line> lines_;
    std::vector<LinkUse> uses_;
    LineHistory history_;
    mutable FabricReport report_;
    const bool recording_;
    std::vector<Waiting> waiting_;  // waits by message
    const std::vector<LinkChange>& changes_;
    std::size_t next_change_ = 0;
    std::vector<Stranded> stranded_;
    bool loops_ = false;
};

}  // namespace

std::unique_ptr<Network> make_aware_network(const Config& config, EventQueue& events, Mailbox& mailbox) {
    return std::make_unique<AwareNetwork>(config, events, mailbox);
}

}  // namespace chakrascope::engine

#include "congestion.h"

#include <algorithm>
#include <cmath>

#include "hpcc.h"

namespace chakrascope::packet {
namespace {

// DCQCN (SIGCOMM 2015) with three timers. A congestion mark cuts the rate by alpha / 2, where alpha is a
// moving average of the frequency of marks.
class Dcqcn final : public CongestionControl {
  public:
    explicit Dcqcn(Flow& flow)
        : flow_(flow), clock_(flow.world.clock), settings_(flow.world.settings), target_(flow.rate_bps) {}

    void acknowledged(Flow&, const Packet& packet) override {
        if (!packet.marked) return;
        marked_for_alpha_ = true;
        marked_for_cut_ = true;
        if (started_) return;
        started_ = true;
        alpha_ = 1;
        marked_for_alpha_ = false;
        target_ = flow_.rate_bps;
        alpha_timer_ = clock_.after<&Dcqcn::update_alpha>(settings_.alpha_interval, this);
        // At the same instant, alpha is updated before the rate is cut.
        cut_timer_ = clock_.after<&Dcqcn::cut>(settings_.decrease_interval + settings_.round(1000), this);
    }

    void finished() override {
        clock_.cancel(alpha_timer_);
        clock_.cancel(cut_timer_);
        clock_.cancel(increase_timer_);
    }

  private:
    void update_alpha() {
        alpha_ = (1 - settings_.gain) * alpha_ + (marked_for_alpha_ ? settings_.gain : 0);
        marked_for_alpha_ = false;
        alpha_timer_ = clock_.after<&Dcqcn::update_alpha>(settings_.alpha_interval, this);
    }

    void cut() {
        cut_timer_ = clock_.after<&Dcqcn::cut>(settings_.decrease_interval, this);
        if (!marked_for_cut_) return;
        if (settings_.clamp_target || stage_ > 0) target_ = flow_.rate_bps;
        flow_.rate_bps = std::max(settings_.minimum_bps, std::floor(flow_.rate_bps * (1 - alpha_ / 2)));
        stage_ = 0;
        marked_for_cut_ = false;
        clock_.cancel(increase_timer_);
        increase_timer_ = clock_.after<&Dcqcn::increase>(settings_.increase_interval, this);
    }

    void increase() {
        increase_timer_ = clock_.after<&Dcqcn::increase>(settings_.increase_interval, this);
        if (stage_ >= settings_.fast_recovery_times) {
            const bool hyper = stage_ > settings_.fast_recovery_times;
            target_ =
                std::min(flow_.line_bps, target_ + (hyper ? settings_.hyper_bps : settings_.additive_bps));
        }
        flow_.rate_bps = std::floor(flow_.rate_bps / 2) + std::floor(target_ / 2);
        ++stage_;
    }

    Flow& flow_;
    Clock& clock_;
    const Settings& settings_;
    double target_;
    double alpha_ = 1;
    std::uint32_t stage_ = 0;
    bool started_ = false;
    bool marked_for_alpha_ = false;
    bool marked_for_cut_ = false;
    Timer alpha_timer_;
    Timer cut_timer_;
    Timer increase_timer_;
};

// DCTCP (SIGCOMM 2010), applied to rates: once per window, alpha becomes a moving average of the fraction of
// marked packets.
class Dctcp final : public CongestionControl {
  public:
    void acknowledged(Flow& flow, const Packet& packet) override {
        const Settings& settings = flow.world.settings;
        marks_ += packet.marked ? 1 : 0;
        const bool new_window = packet.sequence > window_end_;
        if (new_window) begin_window(flow, packet.sequence);
        if (recovering_ && packet.sequence > recovery_end_) recovering_ = false;
        if (packet.marked && !recovering_) {
            flow.rate_bps = std::max(settings.minimum_bps, std::floor(flow.rate_bps * (1 - alpha_ / 2)));
            recovering_ = true;
            recovery_end_ = flow.sent;
        }
        if (!recovering_ && new_window) {
            flow.rate_bps = std::min(flow.line_bps, flow.rate_bps + settings.dctcp_additive_bps);
        }
    }

  private:
    void begin_window(const Flow& flow, std::uint64_t acknowledged) {
        const double gain = flow.world.settings.gain;
        if (window_end_ > 0) {
            const double share = std::min(1.0, static_cast<double>(marks_) / static_cast<double>(packets_));
            alpha_ = (1 - gain) * alpha_ + gain * share;
            marks_ = 0;
            packets_ = (flow.sent - acknowledged) / flow.world.settings.payload_bytes + 1;
        } else {
            packets_ = flow.sent / flow.world.settings.payload_bytes + 1;
        }
        window_end_ = flow.sent;
    }

    double alpha_ = 1;
    std::uint64_t marks_ = 0;
    std::uint64_t packets_ = 1;
    std::uint64_t window_end_ = 0;
    std::uint64_t recovery_end_ = 0;
    bool recovering_ = false;
};

// TIMELY (SIGCOMM 2015): once per round trip, the rate follows the gradient of the round-trip time.
class Timely final : public CongestionControl {
  public:
    explicit Timely(const Flow& flow) : rate_(flow.rate_bps) {}

    void acknowledged(Flow& flow, const Packet& packet) override {
        if (packet.sequence <= window_end_) return;
        const double rtt = static_cast<double>(flow.world.clock.now() - packet.telemetry->sent);
        if (window_end_ > 0) update(flow, rtt);
        if (flow.sent <= window_end_) return;
        window_end_ = flow.sent;
        last_rtt_ = rtt;
    }

  private:
    static constexpr double kAlpha = 0.875;
    static constexpr double kBeta = 0.8;
    static constexpr double kLow = 50e6;
    static constexpr double kHigh = 500e6;
    static constexpr double kMinimum = 20e6;
    static constexpr std::uint32_t kCalmRounds = 5;

    void update(Flow& flow, double rtt) {
        const Settings& settings = flow.world.settings;
        difference_ = (1 - kAlpha) * difference_ + kAlpha * (rtt - last_rtt_);
        const double gradient = difference_ / kMinimum;
        if (rtt < kLow || (rtt <= kHigh && gradient <= 0)) {
            rate_ += calm_ < kCalmRounds ? settings.additive_bps : settings.hyper_bps;
            ++calm_;
        } else {
            const double factor = rtt > kHigh ? 1 - kBeta * (1 - kHigh / rtt) : 1 - kBeta * gradient;
            rate_ *= std::max(factor, 0.0);
            calm_ = 0;
        }
        rate_ = std::floor(std::clamp(rate_, settings.minimum_bps, flow.line_bps));
        // The gap before the packet that is already waiting does not change, except with HPCC.
        flow.rate_bps = rate_;
    }

    double rate_;
    double difference_ = 0;
    double last_rtt_ = 0;
    std::uint32_t calm_ = 0;
    std::uint64_t window_end_ = 0;
};

}  // namespace

std::unique_ptr<CongestionControl> make_control(Flow& flow) {
    switch (flow.world.settings.control) {
        case Control::Dcqcn:
            return std::make_unique<Dcqcn>(flow);
        case Control::Dctcp:
            return std::make_unique<Dctcp>();
        case Control::Timely:
            return std::make_unique<Timely>(flow);
        case Control::Hpcc:
            return std::make_unique<Hpcc>(flow);
        case Control::HpccPint:
            return std::make_unique<HpccPint>(flow);
        default:
            return nullptr;
    }
}

}  // namespace chakrascope::packet
